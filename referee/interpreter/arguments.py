"""A launch's arguments as its kernel sees them in the interpreter: Triton tensors of the types that the compiler gives them.

A parameter's annotation decides its type, as in Triton: `n: tl.int8` holds eight bits. A number that is 1 and has no annotation is a
constant, which has no `.to`. Runs in the interpreter worker.
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
from referee.triton_private import Typing, typings

_TRITON_NAMES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i1", "int8": "i8", "uint8": "u8",
    "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip


def arguments(kernel: Any, config: LaunchConfig, places: Layout, base: int) -> dict[str, Any]:
    """By name. `base` is where the arena lies. Raises ParameterError for a value that is none of the annotated type."""
    types = typings(kernel.fn, kernel.kwargs)
    return {a.name: _host(a.value) if a.constexpr else _typed(a.name, a.value, types[a.name], places, base) for a in config.arguments}


def tensors(given: Iterable[Any]) -> Iterator[Any]:
    """Those of the arguments, and of the parts of tuples among them, that are tensors."""
    for value in given:
        if isinstance(value, tl.tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors(value)


def apart_from_addresses(given: Iterable[Any]) -> Hashable:
    """The arguments' types and values, but for where pointers point to."""
    return tuple(_apart_from_address(value) for value in given)


def _apart_from_address(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return apart_from_addresses(value)
    if not isinstance(value, tl.tensor):
        return type(value), repr(value)
    return value.dtype.name, None if value.dtype.is_ptr() else value.handle.data.tobytes()


def _host(value: Value) -> Any:
    """A constexpr argument as the kernel sees it."""
    if isinstance(value, DtypeValue):
        return tl.str_to_ty(value.name, None)
    return tuple(_host(part) for part in value) if isinstance(value, tuple) else value


def _typed(name: str, value: Value, typing: Typing, places: Layout, base: int) -> Any:
    """A run-time argument: of the annotated type, or of its value's own; a tuple's parts each."""
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
    """A run-time argument of its own type: pointers and scalars become Triton tensors of the GPU's types."""
    if isinstance(value, View):
        pointer = tl.str_to_ty("*" + _TRITON_NAMES[value.dtype], None)
        return _scalar(np.array([_address(value, places, base)], np.uint64), pointer)
    if isinstance(value, bool):
        return _scalar(np.array([value]), tl.int1)
    if isinstance(value, float):
        return _scalar(np.array([value], np.float32), tl.float32)
    return triton_interpreter._implicit_cvt(value)


def _address(view: View, places: Layout, base: int) -> int:
    return base + places.slots[view.buffer].start + view.offset


def _scalar(data: Any, dtype: Any) -> Any:
    return tl.tensor(triton_interpreter.TensorHandle(data, dtype), dtype)
