"""A transformer block with three saved kernels in place of its PyTorch operations: the answers and
the device time.

    python -m bench.saved_block FOLDER [--json FILE]     FOLDER holds rmsnorm.py, add_rmsnorm.py and
    swiglu.py as saved by kmint

Both blocks run under torch.compile(fullgraph=True), the plain one also without. Device time is the
median over events around single calls, with the L2 cache flushed before each; the order alternates,
and a call counts only if all of it was enqueued before the device began with it. The script needs a
GPU; `tests/save/test_block.py` runs the same blocks on the CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from zlib import crc32

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

KERNELS = ("rmsnorm", "add_rmsnorm", "swiglu")
SHAPES = ((512, 2048, 16, 4096), (4096, 2048, 16, 4096), (4096, 4096, 32, 8192))
"""Tokens, width, heads, hidden."""
CALLS = 60
MOST_FLUSHES = 64


@dataclass(frozen=True)
class Operations:
    """The three operations a block is built from."""

    rmsnorm: Callable[[Tensor, Tensor], Tensor]
    add_rmsnorm: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor, Tensor], Tensor]


def load(file: Path) -> ModuleType:
    """A saved kernel's module, from its file."""
    # Two folders may hold files of one name.
    unique = crc32(str(file.resolve()).encode())
    spec = importlib.util.spec_from_file_location(f"saved_{file.stem}_{unique:08x}", file)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(file)
    module = importlib.util.module_from_spec(spec)
    # torch.compile looks up by name the modules whose functions it inlines.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def operations(folder: Path) -> tuple[Operations, Operations]:
    """In plain PyTorch (the references of the saved files), and the saved kernels."""
    modules = [load(folder / f"{name}.py") for name in KERNELS]
    plain = Operations(*(module.reference for module in modules))
    saved = Operations(
        *(getattr(module, name) for module, name in zip(modules, KERNELS, strict=True))
    )
    return plain, saved


class Block(nn.Module):
    """Pre-norm attention and a gated feed-forward layer; no backward. x is (batch, tokens, width)."""

    def __init__(self, width: int, heads: int, hidden: int, ops: Operations) -> None:
        super().__init__()
        self.heads, self.ops = heads, ops
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

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            self.qkv(self.ops.rmsnorm(x, self.norm1))
            .view(batch, tokens, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        heads = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(batch, tokens, width)
        )
        attended: Tensor = self.out(heads)
        h = self.ops.add_rmsnorm(attended, x, self.norm2)
        fed: Tensor = self.down(self.ops.swiglu(self.gate(h), self.up(h)))
        total: Tensor = x + attended + fed
        return total


def blocks(
    ops: tuple[Operations, Operations],
    width: int,
    heads: int,
    hidden: int,
    dtype: torch.dtype,
    device: str,
) -> tuple[Block, Block]:
    """The same weights with plain operations and with saved kernels."""
    torch.manual_seed(0)
    plain, saved = (Block(width, heads, hidden, one) for one in ops)
    saved.load_state_dict(plain.state_dict())
    return plain.to(device, dtype), saved.to(device, dtype)


def device_times(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median microseconds of each call, cold L2. Raises RuntimeError when the host cannot keep
    ahead of the device.
    """
    flush = torch.empty(2**28, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    flushes, number = 4, 0
    while any(len(found) < CALLS for found in times.values()):
        number += 1
        for name in sorted(calls, reverse=number % 2 == 1):
            for _ in range(flushes):
                flush.zero_()
            start, end = _event(), _event()
            start.record()
            calls[name]()
            end.record()
            late = start.query()  # type: ignore[no-untyped-call]
            end.synchronize()
            if not late:
                times[name].append(1000 * start.elapsed_time(end))
                continue
            flushes += 1
            if flushes > MOST_FLUSHES:
                raise RuntimeError(
                    "the device is always done before the host has enqueued a call; is this machine busy?"
                )
    return {name: statistics.median(found[CALLS // 4 :]) for name, found in times.items()}


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


def measure(
    ops: tuple[Operations, Operations], shape: tuple[int, int, int, int], dtype: torch.dtype
) -> dict[str, object]:
    """One row of the table. Raises AssertionError when the two blocks do not agree."""
    # Every row is a new model; torch.compile allows one piece of code eight variants, and all rows
    # share Block.forward.
    torch._dynamo.reset()
    tokens, width, heads, hidden = shape
    plain, saved = blocks(ops, width, heads, hidden, dtype, "cuda")
    x = torch.randn(1, tokens, width, device="cuda", dtype=dtype)
    with torch.no_grad():
        before, after = (torch.compile(block, fullgraph=True) for block in (plain, saved))
        torch.testing.assert_close(after(x).float(), before(x).float(), rtol=3e-2, atol=3e-2)
        times = device_times(
            {"eager": lambda: plain(x), "before": lambda: before(x), "after": lambda: after(x)}
        )
    row = {
        "tokens": tokens,
        "width": width,
        "hidden": hidden,
        "dtype": str(dtype).removeprefix("torch."),
    }
    ratio = times["before"] / times["after"]
    return {
        **row,
        **{f"{name}_us": round(micros, 1) for name, micros in times.items()},
        "ratio": round(ratio, 3),
    }


def main() -> int:
    """Print the table; with --json also write it, with the machine and versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 3
    ops = operations(given.folder)
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        for dtype in (torch.float16, torch.bfloat16):
            row = measure(ops, shape, dtype)
            if not rows:
                print(" ".join(f"{name:>9}" for name in row))
            rows.append(row)
            print(" ".join(f"{value!s:>9}" for value in row.values()), flush=True)
    if given.json:
        machine = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
        }
        given.json.write_text(
            json.dumps({**machine, "rows": rows}, indent=2) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
