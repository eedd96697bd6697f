"""New tensors: constant ones, consecutive numbers, and masks of triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph.aten.casts import cast
from kmint_tui.graph.aten.pointwise import binary, where
from kmint_tui.graph.aten.table import entry, size
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value
from kmint_tui.graph.views import expand


def _filled(sizes: Sequence[Any], fill: Any, dtype: str | None) -> Value:
    """A tensor filled with one number, by default in the number's dtype."""
    made = fill if isinstance(fill, Value) else v.constant(fill)
    made = cast(made, dtype) if dtype else made
    return expand(made, [size(one) for one in sizes])


@entry("full")
def _full(sizes: Sequence[Any], fill: Any, dtype: str | None = None, **_: Any) -> Value:
    return _filled(sizes, fill, dtype)


@entry("ones")
def _ones(sizes: Sequence[Any], dtype: str | None = None, **_: Any) -> Value:
    return _filled(sizes, 1, dtype or "float32")


@entry("zeros", "empty")
def _zeros(sizes: Sequence[Any], dtype: str | None = None, **_: Any) -> Value:
    return _filled(sizes, 0, dtype or "float32")


@entry("scalar_tensor")
def _scalar_tensor(fill: Any, dtype: str | None = None, **_: Any) -> Value:
    return _filled((), fill, dtype)


@entry("new_full")
def _new_full(
    x: Value, sizes: Sequence[Any], fill: Any, dtype: str | None = None, **_: Any
) -> Value:
    return _filled(sizes, fill, dtype or x.dtype)


@entry("new_zeros")
def _new_zeros(x: Value, sizes: Sequence[Any], dtype: str | None = None, **_: Any) -> Value:
    return _filled(sizes, 0, dtype or x.dtype)


@entry("new_ones")
def _new_ones(x: Value, sizes: Sequence[Any], dtype: str | None = None, **_: Any) -> Value:
    return _filled(sizes, 1, dtype or x.dtype)


@entry("full_like")
def _full_like(x: Value, fill: Any, dtype: str | None = None, **_: Any) -> Value:
    return _filled(x.sizes, fill, dtype or x.dtype)


@entry("zeros_like", "empty_like")
def _zeros_like(x: Value, dtype: str | None = None, **_: Any) -> Value:
    return _filled(x.sizes, 0, dtype or x.dtype)


@entry("ones_like")
def _ones_like(x: Value, dtype: str | None = None, **_: Any) -> Value:
    return _filled(x.sizes, 1, dtype or x.dtype)


@entry("arange")
def _arange(
    *bounds: Any, dtype: str | None = None, start: Any = 0, end: Any = None, step: Any = 1, **_: Any
) -> Value:
    if len(bounds) > 1:
        start, end, step = (*bounds, step)[:3]
    else:
        end = bounds[0] if bounds else end
    if not isinstance(start, int) or not isinstance(step, (int, float)):
        raise OutOfScope("an arange from a computed start")
    length = size(end) if not start else size(end) - Size.of(start)
    if step != 1:
        if not isinstance(step, int) or step < 1:
            raise OutOfScope("an arange with a step that is no positive whole number")
        length = (length if length.value % step == 0 else length + Size.of(step - 1)).over(step)
    return v.arange(length, start, step, dtype or "int64")


def _triangle(op: str, x: Value, diagonal: int) -> Value:
    row, column = v.positions(x, -2), v.positions(x, -1)
    inside = binary(op, column, binary("add", row, diagonal) if diagonal else row)
    return where(inside, x, 0.0 if x.kind == "f" else False if x.kind == "b" else 0)


@entry("tril")
def _tril(x: Value, diagonal: int = 0) -> Value:
    return _triangle("le", x, diagonal)


@entry("triu")
def _triu(x: Value, diagonal: int = 0) -> Value:
    return _triangle("ge", x, diagonal)
