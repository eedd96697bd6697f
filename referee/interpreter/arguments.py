"""A launch's arguments in the interpreter: Triton tensors of the types that the compiler gives
them.

A parameter's annotation decides its type, as in Triton: `n: tl.int8` holds eight bits. An
unannotated number that is 1 is a constant, and constants have no `.to`. Runs in the interpreter
worker.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter

from referee.plans.arena import Layout
from referee.plans.plan import DtypeValue, LaunchConfig, Value, View
from referee.replaying.driver import ParameterError, pack
from referee.triton_compat.jit_kernels import Typing, typings

_TRITON_NAMES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


def arguments(kernel: Any, config: LaunchConfig, places: Layout, base: int) -> dict[str, Any]:
    """The arguments by name; `base` is the arena's address.

    Raises ParameterError for a value that does not fit the annotated type.
    """
    types = typings(kernel.fn, kernel.kwargs)
    return {
        a.name: _host(a.value)
        if a.constexpr
        else _typed(a.name, a.value, types[a.name], places, base)
        for a in config.arguments
    }


def tensors(given: Iterable[Any]) -> Iterator[Any]:
    """The tensors among the arguments, also inside tuples."""
    for value in given:
        if isinstance(value, tl.tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors(value)


def constants(given: Iterable[Any], *, numbers: bool) -> Hashable:
    """The compile-time facts of the arguments: types, and values of constants.

    With `numbers`, the values of all numbers count too.
    """
    return tuple(_constant(value, numbers) for value in given)


def _constant(value: Any, numbers: bool) -> Hashable:
    if isinstance(value, tuple):
        return constants(value, numbers=numbers)
    if not isinstance(value, tl.tensor):
        return type(value), repr(value)
    return (
        value.dtype.name,
        value.handle.data.tobytes() if numbers and not value.dtype.is_ptr() else None,
    )


def _host(value: Value) -> Any:
    if isinstance(value, DtypeValue):
        return tl.str_to_ty(value.name, None)
    return tuple(_host(part) for part in value) if isinstance(value, tuple) else value


def _typed(name: str, value: Value, typing: Typing, places: Layout, base: int) -> Any:
    """A run-time argument of its annotated type, else of its value's type; tuples part by part."""
    if isinstance(value, tuple):
        return tuple(_typed(name, part, typing, places, base) for part in value)
    if typing.one_is_constant and type(value) is int and value == 1:
        return value
    kind = typing.annotated
    if not kind or isinstance(value, (str, DtypeValue)):
        return _device(value, places, base)
    if isinstance(value, View):
        if not kind.startswith("*"):
            raise ParameterError(f"`{name}` is annotated {kind}, and a tensor is passed")
        value = _address(value, places, base)
    elif kind == "u1" and value not in (0, 1):
        raise ParameterError(f"`{name}` is annotated bool, and {value} is passed")
    try:
        packed = bytes(pack(kind, value))
    except ParameterError as error:
        raise ParameterError(f"`{name}` is annotated {kind}: {error}") from None
    dtype = tl.str_to_ty(kind, None)
    return _scalar(np.frombuffer(packed, triton_interpreter._get_np_dtype(dtype)).copy(), dtype)


def _device(value: Value, places: Layout, base: int) -> Any:
    """A run-time argument of its value's type; pointers and scalars become tensors."""
    if isinstance(value, View):
        pointer = tl.str_to_ty("*" + _TRITON_NAMES[value.dtype], None)
        return _scalar(np.array([_address(value, places, base)], np.uint64), pointer)
    if isinstance(value, bool):
        return _scalar(np.array([value]), tl.int1)
    if isinstance(value, float):
        return _scalar(np.array([value], np.float32), tl.float32)
    if isinstance(value, int):
        # The first type that holds the value. Triton's function for this loads torch.
        kind = next(kind for kind in ("i32", "i64", "u64") if _holds(kind, value))
        dtype = tl.str_to_ty(kind, None)
        return _scalar(np.array([value], triton_interpreter._get_np_dtype(dtype)), dtype)
    return value


def _holds(kind: str, value: int) -> bool:
    low, high = (
        (0, 1 << 64) if kind == "u64" else (-(1 << int(kind[1:]) - 1), 1 << int(kind[1:]) - 1)
    )
    return low <= value < high


def _address(view: View, places: Layout, base: int) -> int:
    return base + places.slots[view.buffer].start + view.offset


def _scalar(data: Any, dtype: Any) -> Any:
    return tl.tensor(triton_interpreter.TensorHandle(data, dtype), dtype)
