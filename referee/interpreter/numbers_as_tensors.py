"""Turns numbers into tensors where the compiler does, so that they overflow and divide as on a
device.

For example, -7 // 2 is -3 in a tensor. An assigned value becomes a tensor, or its parts do, unless
the name is annotated `tl.constexpr`. These become tensors too: both values of a conditional on a
tensor, numbers next to a tensor in `min` and `max`, and a helper's results. Triton 3.6 converts a
helper's result always; later versions do so only where the helper may return something else.

Limits: later versions' helpers of triton.language itself are not covered. The compiler keeps a
number that all returns under a tensor's condition share; this is not covered either. The module
runs in the interpreter worker.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
from triton.compiler.code_generator import CodeGenerator

# From Triton 3.7 on, the compiler decides a helper's type after it has seen all returns.
RETURNS_NUMBERS = hasattr(CodeGenerator, "decide_return_type")


def assigned(value: Any) -> Any:
    """The value that a name holds after this assignment."""
    if isinstance(value, (tuple, list)):
        return tuple(assigned(part) for part in value)
    if isinstance(value, tl.tuple):
        return tl.tuple([assigned(part) for part in value])
    return triton_interpreter.interpreter_semantic.to_tensor(value, False)


def chosen(condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """The expression `first if condition else second`."""
    value = first() if condition else second()
    return assigned(value) if isinstance(condition, tl.tensor) else value


def least(*values: Any) -> Any:
    """The builtin `min`."""
    return _extreme(builtins.min, lambda left, right: tl.minimum(left, right), values)


def most(*values: Any) -> Any:
    """The builtin `max`."""
    return _extreme(builtins.max, lambda left, right: tl.maximum(left, right), values)


def _extreme(
    of_numbers: Callable[..., Any], of_tensors: Callable[[Any, Any], Any], values: tuple[Any, ...]
) -> Any:
    plain = [value.value if isinstance(value, tl.constexpr) else value for value in values]
    return (
        functools.reduce(of_tensors, plain)
        if any(isinstance(value, tl.tensor) for value in plain)
        else of_numbers(plain)
    )


def noted(condition: Any, decided: list[bool]) -> Any:
    """The condition of a return; records in `decided` whether it is a tensor."""
    if isinstance(condition, tl.tensor):
        decided.append(True)
    return condition


def returned(value: Any, decided: list[bool]) -> Any:
    """The result of a helper that may return something else if a tensor decides."""
    return assigned(value) if decided else value


def patch() -> None:
    """Makes every helper return tensors where the compiler's does. Call it once per process."""
    if not RETURNS_NUMBERS:
        function = triton_interpreter.InterpretedFunction
        call = function.__call__
        function.__call__ = lambda self, *args, **kwargs: assigned(call(self, *args, **kwargs))
