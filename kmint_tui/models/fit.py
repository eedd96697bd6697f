"""How much memory a model will need for N drafts, and whether this machine has it.

An estimate from the file's head: weights, key-value cache at 16 bits for the prompt and every draft, and llama.cpp's
compute buffers. Main memory only; GPU memory is not looked at here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kmint_tui.models.check import ModelFile

PROMPT_TOKENS = 1024
MICRO_BATCH = 512
MARGIN = 256 << 20


@dataclass(frozen=True)
class Estimate:
    """Bytes by purpose."""

    weights: int
    cache: int
    compute: int

    @property
    def total(self) -> int:
        """Everything together, with a margin for the process itself."""
        return self.weights + self.cache + self.compute + MARGIN


def estimate(model: ModelFile, *, drafts: int, max_tokens: int) -> Estimate:
    """The memory for `drafts` drafts of at most `max_tokens` tokens each behind one shared prompt."""
    positions = PROMPT_TOKENS + drafts * max_tokens
    cache = 2 * model.kv_layers * model.kv_heads * (model.key_length + model.value_length) * positions
    compute = MICRO_BATCH * (model.vocabulary + 8 * model.embedding) * 4
    return Estimate(model.nbytes, cache, compute)


def available_memory() -> int | None:
    """Bytes of main memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    words = fields.get("MemAvailable", "").split()
    return int(words[0]) << 10 if words else None


def readable(nbytes: int) -> str:
    """Bytes as people read them, in powers of 1024."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
