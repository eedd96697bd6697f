"""Replaces words of triton.language that the interpreter reads in another way than the compiler.

- In the interpreter a loop counter is a Python integer without `.to` and without overflow; the
  compiler's counter is a tensor.
- In the interpreter a loop may count down by a step known at run time; the compiler's loop does not
  run.
- In the interpreter a dtype among a helper's arguments is none of the constants that have a `value`.
- In the interpreter a module constant wraps its results; the compiler's result is a plain tensor.

Runs in the interpreter worker.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter

from referee.interpreter import kernel_syntax, numbers_as_tensors, reductions
from referee.reading.kernel_vocabulary import TL_MATH

_OPERATORS = "add sub mul truediv floordiv mod and or xor lshift rshift lt le gt ge eq ne".split()


class WrongStep(Exception):
    """The step of a loop, known at run time only, is not positive."""


def counted(
    arg1: Any, arg2: Any = None, step: Any = None, *options: Any, **named: Any
) -> Iterator[Any]:
    """`range` and `tl.range` in a kernel: yields one scalar tensor per iteration.

    Its type is the common type of bounds and step, as in the compiler (`visit_For`). Options have
    no effect. Raises WrongStep.
    """
    first, last = (0, arg1) if arg2 is None else (arg1, arg2)
    bounds = [
        value.value if isinstance(value, tl.constexpr) else value
        for value in (first, last, 1 if step is None else step)
    ]
    semantic = triton_interpreter.interpreter_semantic
    kinds = [semantic.to_tensor(bound).dtype for bound in bounds]
    if not all(kind.is_int() for kind in kinds):
        raise TypeError(
            f"For loop bounds and step must all be ints, are ({', '.join(map(str, kinds))})"
        )
    kind = functools.reduce(semantic.integer_promote_impl, kinds)
    if isinstance(bounds[2], tl.tensor) and int(bounds[2]) <= 0:
        raise WrongStep(
            f"a loop counts in steps of {int(bounds[2])}: only a constant step "
            "(tl.constexpr) may be negative"
        )
    numpy_type = triton_interpreter._get_np_dtype(kind)
    for value in range(*(int(bound) for bound in bounds)):
        yield tl.tensor(triton_interpreter.TensorHandle(np.array([value], numpy_type), kind), kind)


def patch() -> None:
    """Patches triton.language permanently, once per process.

    Triton itself patches and restores it around every launch and every helper call.
    """
    scope = {"tl": tl, "core": tl.core}
    triton_interpreter._patch_lang(types.FunctionType((lambda: None).__code__, scope))
    triton_interpreter._patch_lang = lambda function: None
    tl.range = tl.core.range = counted
    # Triton 3.6 converts a one-element array with int(), which numpy 2.5 refuses.
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    # The compiler gives helpers a dtype as a constexpr.
    tl.dtype.value = property(lambda self: self)
    tl.standard._argmax_combine, tl.standard._argmin_combine = (
        kernel_syntax.larger,
        kernel_syntax.smaller,
    )
    for name in TL_MATH & vars(tl.tensor).keys():
        # For `x.exp()`: Triton patches only the module's function.
        setattr(tl.tensor, name, getattr(tl.math, name))
    for name in _OPERATORS:
        method = f"__{name}__"
        setattr(tl.constexpr, method, _left_to_tensors(getattr(tl.constexpr, method)))
    numbers_as_tensors.patch()
    reductions.patch(triton_interpreter.InterpreterBuilder)


def _left_to_tensors(native: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator of a constant that leaves the calculation to a tensor on the other side."""
    return lambda constant, other: (
        NotImplemented if isinstance(other, tl.tensor) else native(constant, other)
    )
