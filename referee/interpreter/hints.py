"""What a kernel tells the compiler of its values: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`, `tl.assume`, held to be true.

The compiler believes these and widens accesses by them, so a hint that is false may read and write where no mask allows it; the
interpreter does nothing with them. What they mean is what Triton's axis analysis makes of them (`AxisInfo`): of each run of consecutive
values, along any axis, the first is a multiple; each aligned group of so many values is consecutive, or equal; pointers count in bytes for
multiples and in elements for runs. Limits: a hint is held to be true in groups of 16, the most elements of one access, because beyond
those it changes no access. Runs in the interpreter worker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

WIDEST = 16
_WORDS = {"tt.divisibility": "multiple_of", "tt.contiguity": "max_contiguous", "tt.constancy": "max_constancy"}


class FalseHint(Exception):
    """A kernel told the compiler something that is not so."""


def install(interpreter: Any) -> None:
    """Patches the `triton.runtime.interpreter` module given, once per process."""

    def set_attr(self: Any, name: str, values: Sequence[int]) -> None:
        step = max(1, self.dtype.scalar.element_ty.primitive_bitwidth // 8) if self.dtype.scalar.is_ptr() else 1
        check(name, values, self.data, step)
        self.attr[name] = values

    def assume(self: Any, condition: Any) -> None:
        if not np.all(condition.data):
            raise FalseHint("what tl.assume is given is not true; the compiler relies on it")

    interpreter.TensorHandle.set_attr, interpreter.InterpreterBuilder.create_assume = set_attr, assume


def check(name: str, values: Sequence[int], data: Array, step: int) -> None:
    """Raises FalseHint unless the hint holds of `data`, whose consecutive values differ by `step`."""
    if name not in _WORDS:
        return
    numbers = data.astype(np.int64)
    for axis, value in enumerate(values):
        wrong = _multiples(numbers, value, step) if name == "tt.divisibility" else _groups(numbers, axis, value, name, step)
        if wrong is not None:
            raise FalseHint(f"tl.{_WORDS[name]}(..., {value}) is not true: {wrong}; the compiler relies on it")


def _multiples(numbers: Array, value: int, step: int) -> str | None:
    first = np.ones(numbers.shape, bool)
    for axis in range(numbers.ndim):
        np.moveaxis(first, axis, 0)[1:] &= np.moveaxis(np.diff(numbers, axis=axis) != step, axis, 0)
    bad = numbers[first & (numbers % math.gcd(value, WIDEST) != 0)]
    return f"{bad[0]} is no multiple of {value}" if bad.size else None


def _groups(numbers: Array, axis: int, value: int, name: str, step: int) -> str | None:
    size = math.gcd(value, WIDEST, numbers.shape[axis])
    wanted = step if name == "tt.contiguity" else 0
    groups = np.moveaxis(numbers, axis, -1).reshape(-1, size)
    bad = groups[(np.diff(groups, axis=1) != wanted).any(axis=1)]
    return f"{bad[0].tolist()} are not {'consecutive' if wanted else 'equal'}" if bad.size else None
