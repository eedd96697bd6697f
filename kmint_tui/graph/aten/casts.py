"""Casts and copies. A narrower float keeps its value, because a kernel rounds when it stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph.aten.table import entry
from kmint_tui.graph.values import Value
from kmint_tui.graph.views import expand


def cast(x: Value, dtype: str) -> Value:
    """A cast to another dtype, named without torch's prefix. Raises OutOfScope."""
    kind = v.kind_of_dtype(dtype)
    if kind == "f":
        made = v.to_float(x)
    elif kind == "i":
        made = v.pointwise("to_int", x) if x.kind != "i" else x
    else:
        made = x if x.kind == "b" else v.pointwise("ne", x, v.constant(0.0 if x.kind == "f" else 0))
    return replace(made, dtype=dtype)


@entry(
    "_to_copy",
    "to",
    "clone",
    "alias",
    "detach",
    "contiguous",
    "lift_fresh_copy",
    "expand_copy",
    "lift_fresh",
    "detach_copy",
)
def _to_copy(x: Value, *_: Any, dtype: str | None = None, **__: Any) -> Value:
    return cast(x, dtype) if dtype else x


@entry("convert_element_type")
def _convert(x: Value, dtype: str) -> Value:
    return cast(x, dtype)


@entry("copy_", "copy")
def _copy(into: Value, x: Value, non_blocking: bool = False) -> Value:
    return expand(cast(x, into.dtype), [one if one.value != 1 else None for one in into.sizes])


@entry("_assert_async", "_assert_scalar", "_assert_tensor_metadata")
def _asserted(*_: Any, **__: Any) -> None:
    """A check of values changes none."""
