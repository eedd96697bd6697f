"""Estimates the memory of a smith for N drafts with its referee, and compares it with this machine.

The estimate comes from the file's head, for the context that `kmint_tui/smith/decoder.py` makes. It
sums weights, key-value cache and recurrent state of the prompt and every draft, logits, and
llama.cpp's compute buffer.

The formula of the buffer was fitted to the reports of llama-cpp-python 0.3.36 for models of many
shapes without flash attention (on a CPU). With flash attention (on a GPU) it is too large.

On a GPU the referee needs memory for the largest required test case of the catalogue.
- operands and outputs, once for the candidate and once a baseline, in the fewest valid rounds;
- float64 copies to compare with;
- the buffer that flushes the L2 cache, and a CUDA context.

With more memory the referee takes more rounds. It skips optional test cases where memory is short,
so they do not count. On a CPU it needs its processes, as measured (`bench/memory.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from kmint_tui.memory import AvailableMemory, free_memory
from kmint_tui.models.check import ModelFile

# The catalogue's prompts have 444 to 532 tokens in the embedded smith's small vocabulary, and fewer
# in a large one.
PROMPT_TOKENS = 512
PIECE_CPU, PIECE_GPU, SLOTS_CPU = 128, 512, 8
SPARE_TOKENS, CELL_STEP = 8, 256
"""Spare tokens of cache a draft, and the step of cache sizes."""

PROCESS_CPU, PROCESS_GPU = 256 << 20, 600 << 20
"""Bytes of the engine's process without the model."""

# Bytes a weight of the file types, from large to small; the suggestion names one that fits.
_BYTES_A_WEIGHT = {
    "BF16": 2.0,
    "F16": 2.0,
    "Q8_0": 1.0625,
    "Q6_K": 0.82,
    "Q5_K_M": 0.711,
    "Q4_K_M": 0.606,
}

Verdict = Literal["fits", "fits unloaded", "does not fit", "unknown"]
_WORDS = {
    "fits unloaded": "fits if the smith is unloaded while judging",
    "unknown": "unknown whether it fits",
}
BASELINES = 3
"""Number of baselines."""
ROUNDS = 3
"""Least number of valid timing rounds."""
LARGEST_L2 = 128 << 20
"""Bytes of the largest L2 cache."""
FLUSH_FACTOR = 3
"""Size of the flush buffer in L2 caches."""
CUDA_CONTEXT = 600 << 20
"""Bytes of a CUDA context."""
INTERPRETER = 640 << 20
"""Bytes of the processes that interpret two drafts at once."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int64": 8}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes by purpose: `state` of recurrent layers, `output` for the logits, and so on.

    `process` is everything that does not belong to the model.
    """

    weights: int
    cache: int
    state: int
    output: int
    compute: int
    process: int

    @property
    def buffers(self) -> int:
        """Bytes that llama.cpp allocates and reports."""
        return self.weights + self.cache + self.state + self.output + self.compute

    @property
    def total(self) -> int:
        """Sum of all purposes."""
        return self.buffers + self.process


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether a smith and its referee fit the memory; `suggestion` names a helpful change."""

    verdict: Verdict
    place: str
    need: Estimate
    reserve: Reserve
    free: int | None
    suggestion: str

    @property
    def text(self) -> str:
        """The verdict in one line, with the figures and the suggestion."""
        free = "an unknown amount" if self.free is None else readable(self.free)
        smith = (
            f"the smith needs {readable(self.need.total)} ({readable(self.need.buffers)} of it "
            "for the model)"
        )
        figures = (
            f"{smith}, the referee {readable(self.reserve.total)}, {free} of {self.place} is free"
        )
        return f"{_WORDS.get(self.verdict, self.verdict)}: {figures}" + (
            f"; {self.suggestion}" if self.suggestion else ""
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form; sizes in bytes."""
        need, reserve = (
            {**asdict(self.need), "total": self.need.total},
            {**asdict(self.reserve), "total": self.reserve.total},
        )
        verdict = {
            "verdict": self.verdict,
            "place": self.place,
            "suggestion": self.suggestion or None,
        }
        return {**verdict, "need": need, "reserve": reserve, "available": self.free}


def estimate(
    model: ModelFile,
    *,
    drafts: int,
    max_tokens: int,
    prompt_tokens: int = PROMPT_TOKENS,
    gpu: bool = False,
) -> Estimate:
    """The memory for `drafts` drafts of at most `max_tokens` tokens after one shared prompt.

    `gpu` means that all layers are on a GPU.
    """
    slots = drafts if gpu else min(drafts, SLOTS_CPU)
    sequences = slots + 1
    cells = _padded(prompt_tokens + slots * (max_tokens + SPARE_TOKENS), CELL_STEP)
    rows = _padded(PIECE_GPU if gpu else PIECE_CPU, sequences)
    state = (
        model.state_size + (model.conv_kernel - 1) * model.conv_size if model.state_layers else 0
    )
    return Estimate(
        weights=model.nbytes - (model.input_bytes if gpu else 0),
        cache=2
        * model.kv_layers
        * model.kv_heads
        * (model.key_length + model.value_length)
        * cells,
        state=4 * sequences * model.state_layers * state,
        output=4 * sequences * model.vocabulary,
        compute=_compute(model, rows, sequences, cells, flash=gpu),
        process=PROCESS_GPU if gpu else PROCESS_CPU,
    )


def _compute(model: ModelFile, rows: int, sequences: int, cells: int, *, flash: bool) -> int:
    """Bytes of the compute buffer: the largest of attention, feed-forward, recurrence and output.

    All values are 32-bit floats. `rows` tokens are computed at once. Without flash attention every
    row, cell and head has a score.
    """
    query, keys = model.heads * model.key_length, model.kv_heads * model.key_length
    mask = cells // 2 if flash else cells
    scores = 0 if flash else cells * model.heads
    attention = rows * (
        mask + scores + 3 * model.embedding + (3 if model.state_layers else 2) * query + 2 * keys
    )
    feed = rows * (
        mask + 3 * model.feed_forward + 2 * model.embedding + (2 if flash else 1) * query
    )
    recurrence = 9 * sequences * model.state_size // 4 + 3 * rows * model.conv_size // 2
    output = sequences * model.vocabulary + rows * (mask + model.embedding)
    return 4 * max(attention, feed, recurrence, output)


def assess(
    model: ModelFile, *, drafts: int, max_tokens: int, here: AvailableMemory | None = None
) -> Fit:
    """Whether `model` and its referee fit here, or in the given memory."""
    here = here or free_memory()
    gpu = here.gpu is not None
    reserve = reserve_on_gpu() if gpu else reserve_on_cpu()

    def need(drafts: int, tokens: int = max_tokens) -> Estimate:
        return estimate(model, drafts=drafts, max_tokens=tokens, gpu=gpu)

    wanted = need(drafts)
    if here.free is None:
        return Fit(
            verdict="unknown",
            place=here.place,
            need=wanted,
            reserve=reserve,
            free=None,
            suggestion="check it with the system's own tools",
        )
    left = here.free - reserve.total
    if wanted.total <= left:
        return Fit(
            verdict="fits",
            place=here.place,
            need=wanted,
            reserve=reserve,
            free=here.free,
            suggestion="",
        )
    apart = wanted.total <= here.free and left >= 0
    fewer = next((count for count in range(drafts - 1, 0, -1) if need(count).total <= left), None)
    shorter = next(
        (
            tokens
            for tokens in (768, 512, 384, 256)
            if tokens < max_tokens and need(1, tokens).total <= left
        ),
        None,
    )
    if fewer is not None:
        suggestion = f"with --drafts {fewer} it fits"
    elif shorter is not None:
        suggestion = f"with --drafts 1 --max-tokens {shorter} it fits"
    else:
        suggestion = _other_file(model, wanted, left)
    return Fit(
        verdict="fits unloaded" if apart else "does not fit",
        place=here.place,
        need=wanted,
        reserve=reserve,
        free=here.free,
        suggestion=suggestion,
    )


def _other_file(model: ModelFile, wanted: Estimate, left: int) -> str:
    now = _BYTES_A_WEIGHT.get(model.quant, model.nbytes / max(model.parameters, 1))
    rest = wanted.total - wanted.weights
    for quant, size in _BYTES_A_WEIGHT.items():
        if size < now and wanted.weights * size / now + rest <= left:
            return f"as {quant} it would fit"
    return "end other programs, or use a smaller smith: --model embedded"


def _padded(count: int, step: int) -> int:
    return -(-count // step) * step


def readable(nbytes: int) -> str:
    """Bytes for the user, in powers of 1024."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@dataclass(frozen=True)
class Reserve:
    """Bytes by purpose: `operands` with outputs, float64 `reference`, `flush` buffer, own
    `process`.
    """

    operands: int
    reference: int
    flush: int
    process: int

    @property
    def total(self) -> int:
        """Sum of all purposes."""
        return self.operands + self.reference + self.flush + self.process


def reserve_on_cpu() -> Reserve:
    """Two drafts judged at once by Triton's interpreter; CPU test cases have a few rows."""
    return Reserve(0, 0, 0, INTERPRETER)


@cache
def reserve_on_gpu() -> Reserve:
    """A kernel timed against every baseline, for the largest operation of the catalogue."""
    largest = doubled = 0
    for nbytes, elements in _cells():
        largest, doubled = max(largest, nbytes), max(doubled, 8 * elements)
    return Reserve(
        ROUNDS * (1 + BASELINES) * largest, doubled, FLUSH_FACTOR * LARGEST_L2, CUDA_CONTEXT
    )


def _cells() -> list[tuple[int, int]]:
    from referee.ops import catalogue, cells

    found = []
    for op in catalogue():
        for cell in cells(op, profile="gpu"):
            if cell.role != "capability":
                counts = [
                    (_elements(tensor.shape), _BYTES[tensor.dtype])
                    for tensor in (*cell.inputs, *cell.outputs)
                ]
                found.append(
                    (sum(count * size for count, size in counts), sum(count for count, _ in counts))
                )
    return found


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
