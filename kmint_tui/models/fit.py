"""How much memory a smith will need for N drafts beside its referee, and whether this machine has it.

An estimate from the file's head, for the context that `kmint_tui/smith/decoder.py` makes: weights, key-value cache and
recurrent state of the prompt and every draft, the logits, and llama.cpp's compute buffer. The formula of the last was
fitted to what llama.cpp of llama-cpp-python 0.3.36 reports for models of many shapes without flash attention (on a CPU);
with it (on a GPU) it errs to the large side.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from kmint_tui.models.check import ModelFile
from kmint_tui.models.reserve import Reserve, on_cpu, on_gpu
from kmint_tui.models.room import Room, room

# The catalogue's prompts have 444 to 532 tokens in the embedded smith's small vocabulary, and fewer in a large one.
PROMPT_TOKENS = 512
PIECE_CPU, PIECE_GPU, SLOTS_CPU = 128, 512, 8
SPARE_TOKENS, CELL_STEP = 8, 256
PROCESS_CPU, PROCESS_GPU = 256 << 20, 600 << 20

# Bytes a weight of the file types, from large to small, for saying which one would fit.
_BYTES_A_WEIGHT = {"BF16": 2.0, "F16": 2.0, "Q8_0": 1.0625, "Q6_K": 0.82, "Q5_K_M": 0.711, "Q4_K_M": 0.606}

Verdict = Literal["fits", "fits unloaded", "does not fit", "unknown"]
_WORDS = {"fits unloaded": "fits if the smith is unloaded while judging", "unknown": "unknown whether it fits"}


@dataclass(frozen=True)
class Estimate:
    """Bytes by purpose: `state` is what recurrent layers keep, `output` the logits, `process` everything that is not the model's."""

    weights: int
    cache: int
    state: int
    output: int
    compute: int
    process: int

    @property
    def buffers(self) -> int:
        """What llama.cpp allocates and reports."""
        return self.weights + self.cache + self.state + self.output + self.compute

    @property
    def total(self) -> int:
        """Everything together."""
        return self.buffers + self.process


@dataclass(frozen=True)
class Fit:
    """Whether a smith and its referee have room where the weights go; `suggestion` says what would make it fit."""

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
        figures = f"the smith needs {readable(self.need.total)}, the referee {readable(self.reserve.total)}, {free} of {self.place} is free"
        return f"{_WORDS.get(self.verdict, self.verdict)}: {figures}" + (f"; {self.suggestion}" if self.suggestion else "")

    def to_json(self) -> dict[str, Any]:
        """As it stands in JSON documents; sizes in bytes."""
        need, reserve = {**asdict(self.need), "total": self.need.total}, {**asdict(self.reserve), "total": self.reserve.total}
        verdict = {"verdict": self.verdict, "place": self.place, "suggestion": self.suggestion or None}
        return {**verdict, "need": need, "reserve": reserve, "available": self.free}


def estimate(model: ModelFile, *, drafts: int, max_tokens: int, prompt_tokens: int = PROMPT_TOKENS, gpu: bool = False) -> Estimate:
    """The memory for `drafts` drafts of at most `max_tokens` tokens each behind one shared prompt; `gpu` for one with all layers there."""
    slots = drafts if gpu else min(drafts, SLOTS_CPU)
    sequences = slots + 1
    cells = _padded(prompt_tokens + slots * (max_tokens + SPARE_TOKENS), CELL_STEP)
    rows = _padded(PIECE_GPU if gpu else PIECE_CPU, sequences)
    state = model.state_size + (model.conv_kernel - 1) * model.conv_size if model.state_layers else 0
    return Estimate(
        weights=model.nbytes - (model.input_bytes if gpu else 0),
        cache=2 * model.kv_layers * model.kv_heads * (model.key_length + model.value_length) * cells,
        state=4 * sequences * model.state_layers * state,
        output=4 * sequences * model.vocabulary,
        compute=_compute(model, rows, sequences, cells, flash=gpu),
        process=PROCESS_GPU if gpu else PROCESS_CPU,
    )


def _compute(model: ModelFile, rows: int, sequences: int, cells: int, *, flash: bool) -> int:
    """The largest of what attention, feed-forward, recurrence and output keep at once, in bytes; 32-bit floats throughout.

    `rows` tokens are worked on at once. Without flash attention there is a score for every row, cell and head.
    """
    query, keys = model.heads * model.key_length, model.kv_heads * model.key_length
    mask = cells // 2 if flash else cells
    scores = 0 if flash else cells * model.heads
    attention = rows * (mask + scores + 3 * model.embedding + (3 if model.state_layers else 2) * query + 2 * keys)
    feed = rows * (mask + 3 * model.feed_forward + 2 * model.embedding + (2 if flash else 1) * query)
    recurrence = 9 * sequences * model.state_size // 4 + 3 * rows * model.conv_size // 2
    output = sequences * model.vocabulary + rows * (mask + model.embedding)
    return 4 * max(attention, feed, recurrence, output)


def assess(model: ModelFile, *, drafts: int, max_tokens: int, here: Room | None = None) -> Fit:
    """Whether `model` fits here (or in the room given) with its referee."""
    here = here or room()
    gpu = here.gpu is not None
    reserve = on_gpu() if gpu else on_cpu()

    def need(drafts: int, tokens: int = max_tokens) -> Estimate:
        return estimate(model, drafts=drafts, max_tokens=tokens, gpu=gpu)

    wanted = need(drafts)
    if here.free is None:
        return Fit("unknown", here.place, wanted, reserve, None, "look at it with the system's own tools")
    left = here.free - reserve.total
    if wanted.total <= left:
        return Fit("fits", here.place, wanted, reserve, here.free, "")
    apart = wanted.total <= here.free and left >= 0
    fewer = next((count for count in range(drafts - 1, 0, -1) if need(count).total <= left), None)
    shorter = next((tokens for tokens in (768, 512, 384, 256) if tokens < max_tokens and need(1, tokens).total <= left), None)
    if fewer is not None:
        suggestion = f"with --drafts {fewer} it fits"
    elif shorter is not None:
        suggestion = f"with --drafts 1 --max-tokens {shorter} it fits"
    else:
        suggestion = _other_file(model, wanted, left)
    return Fit("fits unloaded" if apart else "does not fit", here.place, wanted, reserve, here.free, suggestion)


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
    """Bytes as people read them, in powers of 1024."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
