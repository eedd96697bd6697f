"""Loads, stores and atomics of the interpreter, checked address by address against the plan's buffers.

Triton's interpreter reads and writes real addresses. A masked-out lane touches nothing; any other lane must lie in a
buffer of the running plan, else the launch ends with `OutOfBounds`. Limits: within a buffer, a wrong index is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class OutOfBounds(Exception):
    """A lane reached outside every buffer; the message names program, argument and distance."""


class CheckedMemory:
    """Stands in for the interpreter's native memory module; everything but the accesses passes through to it."""

    def __init__(self, native: Any, program: Callable[[], tuple[int, ...]]) -> None:
        self._native = native
        self._program = program
        self._starts: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._ends: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._names: list[str] = []
        self.violation: OutOfBounds | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def allow(self, buffers: Mapping[str, tuple[int, int]]) -> None:
        """From now on only these address ranges [start, end) may be touched; the keys name them in messages."""
        ranges = sorted((start, end, name) for name, (start, end) in buffers.items())
        self._starts = np.array([start for start, _, _ in ranges], np.uint64)
        self._ends = np.array([end for _, end, _ in ranges], np.uint64)
        self._names = [name for _, _, name in ranges]

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Array:
        """As the native load; raises OutOfBounds before any memory is read."""
        self._check(pointers, mask, np.dtype(dtype).itemsize, "reads")
        result: Array = self._native.load(pointers, mask, other, dtype)
        return result

    def store(self, pointers: Array, value: Array, mask: Array) -> Any:
        """As the native store; raises OutOfBounds before any memory is written."""
        self._check(pointers, mask, value.dtype.itemsize, "writes")
        return self._native.store(pointers, value, mask)

    def atomic_rmw(self, operation: Any, pointers: Array, value: Array, mask: Array, semantics: Any) -> Any:
        """As the native read-modify-write; raises OutOfBounds first."""
        self._check(pointers, mask, value.dtype.itemsize, "updates")
        return self._native.atomic_rmw(operation, pointers, value, mask, semantics)

    def atomic_cas(self, pointers: Array, compare: Array, value: Array, semantics: Any) -> Any:
        """As the native compare-and-swap; raises OutOfBounds first."""
        self._check(pointers, np.ones_like(pointers, dtype=bool), value.dtype.itemsize, "updates")
        return self._native.atomic_cas(pointers, compare, value, semantics)

    def _check(self, pointers: Array, mask: Array, itemsize: int, verb: str) -> None:
        # For block pointers Triton hands over a memory view of the mask.
        touched = pointers[np.asarray(mask).astype(bool)]
        if touched.size == 0:
            return
        low, high = touched.min(), touched.max() + np.uint64(itemsize)
        home = int(np.searchsorted(self._starts, low, "right")) - 1
        if home >= 0 and high <= self._ends[home]:
            return
        homes = np.searchsorted(self._starts, touched, "right").astype(np.int64) - 1
        bad = touched[(homes < 0) | (touched + np.uint64(itemsize) > self._ends[homes])]
        if bad.size:
            self.violation = OutOfBounds(self._describe(bad, itemsize, verb))
            raise self.violation

    def _describe(self, bad: Array, itemsize: int, verb: str) -> str:
        distances = []
        for index, (start, end) in enumerate(zip(self._starts.tolist(), self._ends.tolist(), strict=True)):
            low, high = int(bad.min()), int(bad.max())
            distances.append((abs(low - end) if low >= end else abs(start - high), index, low >= end))
        _, index, after = min(distances) if distances else (0, -1, True)
        where = f"{'past the end' if after else 'before the start'} of `{self._names[index]}`" if index >= 0 else "outside every buffer"
        lanes = "1 element" if bad.size == 1 else f"{bad.size} elements"
        return f"program {self._program()} {verb} {lanes} {where}"
