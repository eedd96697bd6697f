"""What the referee needs beside the smith: for timing on a GPU, and for interpreting on a CPU.

On a GPU: the operands and outputs of the largest required cell of the catalogue, once for the candidate and once for each
baseline in the fewest rounds that count; float64 copies to compare with; the buffer that flushes the L2 cache; a CUDA
context. With more room the referee takes more rounds. Cells beyond the contract are skipped where memory is short, so
they are not counted. On a CPU: its processes, as measured (`bench/memory.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

BASELINES = 3
ROUNDS = 3
LARGEST_L2 = 128 << 20
FLUSH_FACTOR = 3
CUDA_CONTEXT = 600 << 20
INTERPRETER = 640 << 20

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int64": 8}


@dataclass(frozen=True)
class Reserve:
    """Bytes by purpose: `operands` and outputs, float64 `reference`, `flush` buffer, the referee's own `process`."""

    operands: int
    reference: int
    flush: int
    process: int

    @property
    def total(self) -> int:
        """Everything together."""
        return self.operands + self.reference + self.flush + self.process


def on_cpu() -> Reserve:
    """Two drafts judged at once by Triton's interpreter; the cells of a CPU are a few rows."""
    return Reserve(0, 0, 0, INTERPRETER)


@cache
def on_gpu() -> Reserve:
    """A kernel timed against every baseline, for the largest operation of the catalogue."""
    largest = doubled = 0
    for nbytes, elements in _cells():
        largest, doubled = max(largest, nbytes), max(doubled, 8 * elements)
    return Reserve(ROUNDS * (1 + BASELINES) * largest, doubled, FLUSH_FACTOR * LARGEST_L2, CUDA_CONTEXT)


def _cells() -> list[tuple[int, int]]:
    from referee.ops import catalogue, cells

    found = []
    for op in catalogue():
        for cell in cells(op, profile="gpu"):
            if cell.role != "capability":
                counts = [(_elements(tensor.shape), _BYTES[tensor.dtype]) for tensor in (*cell.inputs, *cell.outputs)]
                found.append((sum(count * size for count, size in counts), sum(count for count, _ in counts)))
    return found


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
