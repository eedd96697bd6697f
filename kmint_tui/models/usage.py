"""The memory of a loaded smith from the engine's log, compared with the estimate.

llama.cpp writes the size of every new buffer, in MiB with two decimals. A log may hold several
contexts, because the engine measures in small ones first: the last of each counts. Where GPU
buffers exist, only those count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kmint_tui.models.check import ModelFile
from kmint_tui.models.fit import Estimate, estimate, readable

_BUFFER = re.compile(r"(\S+)\s+(model|KV|RS|output|compute) buffer size =\s*([\d.]+) MiB")
_MODEL_BEGINS, _CONTEXT_BEGINS = "loaded meta data", "constructing llama_context"
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Used:
    """Bytes of llama.cpp's buffers by purpose, in the memory that holds the model."""

    weights: int
    cache: int
    state: int
    output: int
    compute: int
    on_gpu: bool = False

    @property
    def buffers(self) -> int:
        """Sum of all buffers."""
        return self.weights + self.cache + self.state + self.output + self.compute

    def error(self, estimate: Estimate) -> float:
        """The estimate's error as a part of the real size; above 0 when too large."""
        return (estimate.buffers - self.buffers) / self.buffers


def read(log: Path) -> Used | None:
    """The buffers of the last model and context in a log; None without any, or without the log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return used(text.splitlines())


def note(log: Path, model: ModelFile, *, drafts: int, max_tokens: int) -> str | None:
    """One line that compares a session's memory with its estimate; None without figures.

    The prompt's length is that of the estimate before the session.
    """
    real = read(log)
    if real is None:
        return None
    expected = estimate(model, drafts=drafts, max_tokens=max_tokens, gpu=real.on_gpu)
    difference = f"{100 * real.error(expected):+.0f} %"
    return (
        f"the smith took {readable(real.buffers)} for the model; the estimate was "
        f"{readable(expected.buffers)} ({difference})"
    )


def used(lines: list[str]) -> Used | None:
    """The buffers in these lines of llama.cpp."""
    sizes: dict[tuple[str, str], int] = {}
    for line in lines:
        if _MODEL_BEGINS in line:
            sizes = {}
        elif _CONTEXT_BEGINS in line:
            sizes = {key: size for key, size in sizes.items() if key[1] == "model"}
        elif found := _BUFFER.search(line):
            sizes[found[1], found[2]] = round(float(found[3]) * _MIB)

    on_gpu = any(_is_gpu(device) for device, _ in sizes)

    def total(kind: str) -> int:
        return sum(
            size
            for (device, name), size in sizes.items()
            if name == kind and (_is_gpu(device) or not on_gpu)
        )

    if not total("model") or not total("compute"):
        return None
    return Used(
        weights=total("model"),
        cache=total("KV"),
        state=total("RS"),
        output=total("output"),
        compute=total("compute"),
        on_gpu=on_gpu,
    )


def _is_gpu(device: str) -> bool:
    return not device.startswith("CPU") and not device.endswith("_Host")
