"""Trains a small transformer for 100 steps with five saved kernels: compares losses and times of a
step.

    python bench/saved_training.py [--kernels FOLDER] [--author smith|selftest] [--seconds LIMIT]
    [--json FILE] [--tiny]

FOLDER holds rmsnorm.py, add_rmsnorm.py, swiglu.py, rope.py and cross_entropy.py as saved by kmint.
Without it the script first makes the five kernels, judges them and saves them. The embedded smith
mints them if llama.cpp is built; otherwise they come from the selftest.

Forward and backward run under torch.compile(fullgraph=True), the plain model also without. The
losses with the kernels may differ from the plain ones by at most four times the noise of rounding.
The noise is the larger difference of two plain models: the compiled one, and one with first weights
changed in the last bit. Times are medians over the steps after the first ten, by events.

Some steps then run again under CUDA graphs. The script names the parts for which LIMIT leaves no
time. It needs a GPU. With --tiny it tries all but the times on the CPU, where a saved file computes
its reference. Exit code 1 when losses differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import triton  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from bench.five_kernels import Operations, default_author, operations, save_five  # noqa: E402

SCHEMA = "kmint.bench.saved_training/1"
STEPS, WARM, GRAPH_STEPS = 100, 10, 30
NOISE = 4
"""How many times the noise of rounding the losses may differ."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and its batch."""

    batch: int
    tokens: int
    width: int
    heads: int
    hidden: int
    layers: int
    vocabulary: int


GPU = Sizes(batch=8, tokens=512, width=1024, heads=16, hidden=2816, layers=2, vocabulary=8192)
TINY = Sizes(batch=2, tokens=8, width=128, heads=2, hidden=96, layers=1, vocabulary=61)


class Layer(nn.Module):
    """Attention with rotary positions and a gated feed-forward layer. x is (batch, tokens, width)."""

    def __init__(self, sizes: Sizes, ops: Operations) -> None:
        super().__init__()
        width, hidden = sizes.width, sizes.hidden
        self.heads, self.ops = sizes.heads, ops
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.gate, self.up = (
            nn.Linear(width, hidden, bias=False),
            nn.Linear(width, hidden, bias=False),
        )
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = self.qkv(self.ops.rmsnorm(x, self.norm1)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = (one.contiguous() for one in split.unbind(2))
        q, k = self.ops.rope(q, cos, sin), self.ops.rope(k, cos, sin)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended: Tensor = self.out(heads.transpose(1, 2).reshape(batch, tokens, width))
        h = self.ops.add_rmsnorm(attended, x, self.norm2)
        total: Tensor = x + attended + self.down(self.ops.swiglu(self.gate(h), self.up(h)))
        return total


class Transformer(nn.Module):
    """The mean loss of the next tokens. `tokens` and `targets` are (batch, tokens)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: Sizes, ops: Operations) -> None:
        super().__init__()
        self.ops = ops
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes, ops) for _ in range(sizes.layers))
        self.norm = nn.Parameter(torch.ones(sizes.width))
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        head = sizes.width // sizes.heads
        angles = torch.arange(sizes.tokens)[:, None] / 10000 ** (torch.arange(head // 2) * 2 / head)
        turned = torch.cat((angles, angles), -1)[None, :, None].expand(
            sizes.batch, -1, sizes.heads, -1
        )
        self.register_buffer("cos", turned.cos().contiguous())
        self.register_buffer("sin", turned.sin().contiguous())

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.ops.rmsnorm(x, self.norm)).float()
        return self.ops.cross_entropy(logits.flatten(0, 1), targets.flatten()).mean()


def batches(sizes: Sizes, steps: int, device: str) -> list[Tensor]:
    """Rows of tokens that can be learned: each follows from the one before it, but for one in ten."""
    draw = torch.Generator().manual_seed(3)
    found = []
    for _ in range(steps):
        row = torch.randint(sizes.vocabulary, (sizes.batch, 1), generator=draw)
        for _ in range(sizes.tokens):
            strange = torch.rand((sizes.batch, 1), generator=draw) < 0.1
            other = torch.randint(sizes.vocabulary, (sizes.batch, 1), generator=draw)
            row = torch.cat(
                (row, torch.where(strange, other, (5 * row[:, -1:] + 1) % sizes.vocabulary)), 1
            )
        found.append(row.to(device))
    return found


@dataclass(frozen=True)
class Run:
    """The loss of every step, the median step in microseconds, and all seconds with compilation.
    The CPU has no times.
    """

    losses: list[float]
    step_us: float | None
    seconds: float


def model(
    sizes: Sizes, ops: Operations, dtype: torch.dtype, device: str, *, nudged: bool = False
) -> Transformer:
    """The same weights each time; `nudged`, each is changed in its last bit or not at all."""
    torch.manual_seed(0)
    made = Transformer(sizes, ops).to(device, dtype)
    if nudged:
        with torch.no_grad():
            for weight in made.parameters():
                weight.mul_(
                    1
                    + torch.finfo(dtype).eps
                    * torch.randint(0, 2, weight.shape, device=device).to(dtype)
                )
    return made


def train(
    made: Transformer,
    data: list[Tensor],
    compiled: Callable[[Transformer], Callable[[Tensor, Tensor], Tensor]],
) -> Run:
    """One step a batch."""
    began = time.monotonic()
    # Every run compiles a new model; torch.compile allows one piece of code eight variants.
    torch._dynamo.reset()
    forward = compiled(made)
    on_gpu = data[0].is_cuda
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-3, fused=on_gpu)
    losses, events = [], []
    for rows in data:
        if on_gpu:
            events.append(_event())
        loss = forward(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    step_us = None
    if on_gpu:
        torch.cuda.synchronize()
        times = [
            1000 * one.elapsed_time(other)
            for one, other in zip(events[WARM:], events[WARM + 1 :], strict=False)
        ]
        step_us = round(statistics.median(times), 1)
    return Run([float(one) for one in losses], step_us, round(time.monotonic() - began, 1))


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def plainly(made: Transformer) -> Callable[[Tensor, Tensor], Tensor]:
    """The model itself, without torch.compile."""
    return made


def inductor(made: Transformer) -> Callable[[Tensor, Tensor], Tensor]:
    """One graph without a break."""
    whole: Callable[[Tensor, Tensor], Tensor] = torch.compile(made, fullgraph=True)
    return whole


def graphs(made: Transformer) -> Callable[[Tensor, Tensor], Tensor]:
    """One graph, which CUDA graphs replay."""
    whole: Callable[[Tensor, Tensor], Tensor] = torch.compile(
        made, fullgraph=True, mode="reduce-overhead"
    )
    return whole


def apart(one: Run, other: Run) -> float:
    """The largest difference of two losses of the same step."""
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


def compare(
    ops: tuple[Operations, Operations],
    sizes: Sizes,
    dtype: torch.dtype,
    device: str,
    *,
    steps: int = STEPS,
    compiled: Callable[[Transformer], Callable[[Tensor, Tensor], Tensor]] = inductor,
) -> dict[str, Any]:
    """One row: the losses of four runs, how far they lie apart, and the time of a step."""
    plain, saved = ops
    data = batches(sizes, steps, device)
    eager = train(model(sizes, plain, dtype, device), data, plainly)
    nudged = train(model(sizes, plain, dtype, device, nudged=True), data, plainly)
    before = train(model(sizes, plain, dtype, device), data, compiled)
    after = train(model(sizes, saved, dtype, device), data, compiled)
    noise, difference = max(apart(eager, nudged), apart(eager, before)), apart(eager, after)
    learned = after.losses[-1] < 0.9 * after.losses[0]
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "steps": steps,
        "first_loss": after.losses[0],
        "last_loss": after.losses[-1],
        "noise": noise,
        "difference": difference,
        "equal": difference <= NOISE * noise and learned,
        "eager_us": eager.step_us,
        "before_us": before.step_us,
        "after_us": after.step_us,
        "runs": {
            name: asdict(run)
            for name, run in (
                ("eager", eager),
                ("nudged", nudged),
                ("before", before),
                ("after", after),
            )
        },
    }


def under_graphs(
    ops: tuple[Operations, Operations], sizes: Sizes, row: dict[str, Any], dtype: torch.dtype
) -> dict[str, Any]:
    """Some of the steps of `row` again, under CUDA graphs: as far from the eager losses as rounding
    takes them.
    """
    data = batches(sizes, GRAPH_STEPS, "cuda")
    before, after = (train(model(sizes, one, dtype, "cuda"), data, graphs) for one in ops)
    difference = max(
        abs(a - b) for a, b in zip(after.losses, row["runs"]["eager"]["losses"], strict=False)
    )
    equal = difference <= NOISE * row["noise"]
    return {
        "steps": GRAPH_STEPS,
        "difference": difference,
        "equal": equal,
        "before_us": before.step_us,
        "after_us": after.step_us,
    }


SHOWN = (
    "dtype",
    "steps",
    "first_loss",
    "last_loss",
    "noise",
    "difference",
    "equal",
    "eager_us",
    "before_us",
    "after_us",
)


def show(row: dict[str, Any], *, head: bool) -> None:
    """One line of the table."""
    if head:
        print(" ".join(f"{name:>10}" for name in SHOWN))
    cells = [row.get(name, "") for name in SHOWN]
    print(
        " ".join(
            f"{one:>10.3g}" if isinstance(one, float) and one < 1000 else f"{one!s:>10}"
            for one in cells
        ),
        flush=True,
    )


def main() -> int:
    """Print the table; with --json also write it, with the losses, the machine and the versions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--author", choices=("smith", "selftest"), default=default_author())
    parser.add_argument(
        "--seconds", type=float, default=140.0, help="begin no part after this time"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, at a tiny size")
    given = parser.parse_args()
    if not given.tiny and not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 3
    began = time.monotonic()
    verdicts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = given.kernels or Path(made)
        if given.kernels is None:
            verdicts = save_five(folder, given.author)
            print(
                f"saved after {time.monotonic() - began:.0f} s, {given.author}: {verdicts}",
                flush=True,
            )
        ops = operations(folder)
        # TF32 would make the noise of float32 that of ten bits.
        torch.backends.cuda.matmul.allow_tf32 = False
        rows: list[dict[str, Any]] = []
        if given.tiny:
            rows.append(compare(ops, TINY, torch.float32, "cpu"))
            show(rows[0], head=True)
            return 0 if rows[0]["equal"] else 1
        for dtype in (torch.bfloat16, torch.float32):
            if rows and time.monotonic() - began > 0.7 * given.seconds:
                print(f"no time was left for {dtype}", flush=True)
                continue
            row = compare(ops, GPU, dtype, "cuda")
            show(row, head=not rows)
            rows.append(row)
        if time.monotonic() - began < 0.8 * given.seconds:
            rows[0]["graphs"] = under_graphs(ops, GPU, rows[0], torch.bfloat16)
            show({"dtype": "graphs", **rows[0]["graphs"]}, head=False)
        else:
            print("no time was left for CUDA graphs", flush=True)
    if given.json:
        versions = {"torch": torch.__version__, "triton": triton.__version__}
        document = {
            "schema": SCHEMA,
            "device": torch.cuda.get_device_name(),
            **versions,
            "kernels": verdicts,
            "sizes": asdict(GPU),
        }
        document |= {
            "author": given.author,
            "seconds": round(time.monotonic() - began, 1),
            "rows": rows,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    parts = [*rows, *(row["graphs"] for row in rows if "graphs" in row)]
    return 0 if all(part["equal"] for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
