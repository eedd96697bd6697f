"""Where the compiler makes a tensor of a number, so that it overflows and is divided as the device does: -7 // 2 is -3 there.

What a name is assigned becomes a tensor, or its parts do, unless the name is annotated `tl.constexpr`; so do both values of a
conditional expression that a tensor decides about, the numbers beside a tensor in `min` and `max`, and what a helper returns: always
in Triton 3.6, and later where it may return something else. Helpers of Triton's own language that do so later are not looked at, nor is
whether all the returns that a tensor decides about have the same number, which would stay one. Runs in the interpreter worker.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
from triton.compiler.code_generator import CodeGenerator

# Triton 3.7 settles a helper's type when it has seen all that it returns.
RETURNS_NUMBERS = hasattr(CodeGenerator, "decide_return_type")


def assigned(value: Any) -> Any:
    """What a name holds that this value is assigned to."""
    if isinstance(value, (tuple, list)):
        return tuple(assigned(part) for part in value)
    if isinstance(value, tl.tuple):
        return tl.tuple([assigned(part) for part in value])
    return triton_interpreter.interpreter_semantic.to_tensor(value, False)


def chosen(condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """`first if condition else second`"""
    value = first() if condition else second()
    return assigned(value) if isinstance(condition, tl.tensor) else value


def least(*values: Any) -> Any:
    """The builtin `min`."""
    return _extreme(builtins.min, lambda left, right: tl.minimum(left, right), values)


def most(*values: Any) -> Any:
    """The builtin `max`."""
    return _extreme(builtins.max, lambda left, right: tl.maximum(left, right), values)


def _extreme(of_numbers: Callable[..., Any], of_tensors: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    plain = [value.value if isinstance(value, tl.constexpr) else value for value in values]
    return functools.reduce(of_tensors, plain) if any(isinstance(value, tl.tensor) for value in plain) else of_numbers(plain)


def noted(condition: Any, decided: list[bool]) -> Any:
    """The condition of a return: remembers whether it is a tensor."""
    if isinstance(condition, tl.tensor):
        decided.append(True)
    return condition


def returned(value: Any, decided: list[bool]) -> Any:
    """What a helper returns that may return something else if a tensor decides about it."""
    return assigned(value) if decided else value


def patch() -> None:
    """Has every helper return tensors where the compiler's do. Once per process."""
    if not RETURNS_NUMBERS:
        function = triton_interpreter.InterpretedFunction
        call = function.__call__
        function.__call__ = lambda self, *args, **kwargs: assigned(call(self, *args, **kwargs))
