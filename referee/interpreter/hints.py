"""Checks hints of a kernel to the compiler: `tl.multiple_of`, `tl.max_contiguous`,
`tl.max_constancy`, `tl.assume`.

The compiler trusts hints and widens accesses by them, so a false hint may read and write where no
mask allows it. The interpreter ignores hints. Their meaning here is that of Triton's axis analysis
(`AxisInfo`). The first value of each run of consecutive values along an axis is a multiple. Each
aligned group of the given size is consecutive or equal. Pointers count in bytes for multiples and
in elements for runs. Limits: groups have at most 16 elements, the most of one access; larger groups
change no access. Runs in the interpreter worker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

WIDEST = 16
"""Maximum number of elements of one access."""
_WORDS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}


class FalseHint(Exception):
    """A hint of the kernel is false."""


def install(interpreter: Any) -> None:
    """Patches the given `triton.runtime.interpreter` module, once per process."""

    def set_attr(self: Any, name: str, values: Sequence[int]) -> None:
        step = (
            max(1, self.dtype.scalar.element_ty.primitive_bitwidth // 8)
            if self.dtype.scalar.is_ptr()
            else 1
        )
        check(name, values, self.data, step)
        self.attr[name] = values

    def assume(self: Any, condition: Any) -> None:
        if not np.all(condition.data):
            raise FalseHint("the condition of tl.assume is not true; the compiler relies on it")

    interpreter.TensorHandle.set_attr, interpreter.InterpreterBuilder.create_assume = (
        set_attr,
        assume,
    )


def check(name: str, values: Sequence[int], data: Array, step: int) -> None:
    """Raises FalseHint unless the hint holds for `data`, whose values differ by `step`."""
    if name not in _WORDS:
        return
    numbers = data.astype(np.int64)
    for axis, value in enumerate(values):
        wrong = (
            _multiples(numbers, value, step)
            if name == "tt.divisibility"
            else _groups(numbers, axis, value, name, step)
        )
        if wrong is not None:
            raise FalseHint(
                f"tl.{_WORDS[name]}(..., {value}) is not true: {wrong}; the compiler relies on it"
            )


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
