"""Reductions, operations composed of them, and scans."""

from __future__ import annotations

import math
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.aten.casts import cast
from kmint_tui.graph.aten.pointwise import binary, unary, where
from kmint_tui.graph.aten.shapes import squeeze
from kmint_tui.graph.aten.table import entry, places_of
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.values import Value


@entry("sum")
def _sum(x: Value, places: Any = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    value = cast(x, dtype) if dtype else x if x.kind == "f" else cast(x, "int64")
    return v.reduce("sum", value, places_of(places), keep=keepdim)


@entry("mean")
def _mean(x: Value, places: Any = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    return v.mean(x, places_of(places), keep=keepdim)


@entry("prod")
def _prod(x: Value, places: Any = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    return v.reduce("prod", x, places_of(places), keep=keepdim)


@entry("amax")
def _amax(x: Value, places: Any = None, keepdim: bool = False) -> Value:
    return v.reduce("max", x, places_of(places), keep=keepdim)


@entry("amin")
def _amin(x: Value, places: Any = None, keepdim: bool = False) -> Value:
    return v.reduce("min", x, places_of(places), keep=keepdim)


@entry("max")
def _max(x: Value, y: Any = None, keepdim: bool = False) -> Value | tuple[Value, Value]:
    return _extreme("max", x, y, keepdim)


@entry("min")
def _min(x: Value, y: Any = None, keepdim: bool = False) -> Value | tuple[Value, Value]:
    return _extreme("min", x, y, keepdim)


def _extreme(op: str, x: Value, y: Any, keepdim: bool) -> Value | tuple[Value, Value]:
    """ATen's forms: of two tensors, of all elements, and along a dimension with the places."""
    if isinstance(y, Value):
        return binary(f"{op}imum", x, y)
    if y is None:
        return v.reduce(op, x, None)
    return v.reduce(op, x, [y], keep=keepdim), v.reduce(f"arg{op}", x, [y], keep=keepdim)


@entry("argmax")
def _argmax(x: Value, place: int | None = None, keepdim: bool = False) -> Value:
    return v.reduce("argmax", x, places_of(place), keep=keepdim)


@entry("argmin")
def _argmin(x: Value, place: int | None = None, keepdim: bool = False) -> Value:
    return v.reduce("argmin", x, places_of(place), keep=keepdim)


@entry("topk")
def _topk(
    x: Value, count: Any, place: int = -1, largest: bool = True, *options: Any
) -> tuple[Value, Value]:
    """The extreme element, then that of the others, and so on: a reduction for each."""
    if not isinstance(count, int) or count > views.MOST_PIECES:
        raise OutOfScope(f"the first {count} elements of a row, which are more than a few")
    op, worst = ("max", -math.inf) if largest else ("min", math.inf)
    found, numbers, left = [], [], v.to_float(x)
    for _ in range(count):
        found.append(v.reduce(op, left, [place]))
        numbers.append(v.reduce(f"arg{op}", left, [place], keep=True))
        left = where(binary("eq", v.positions(x, place), numbers[-1]), worst, left)
    at = place % len(x.dims)
    numbers = [squeeze(number, at) for number in numbers]
    return views.stack(found, at), views.stack(numbers, at)


@entry("any")
def _any(x: Value, places: Any = None, keepdim: bool = False) -> Value:
    return _truth("max", x, places, keepdim)


@entry("all")
def _all(x: Value, places: Any = None, keepdim: bool = False) -> Value:
    return _truth("min", x, places, keepdim)


def _truth(op: str, x: Value, places: Any, keepdim: bool) -> Value:
    whole = v.pointwise("to_int", x if x.kind == "b" else cast(x, "bool"))
    return cast(v.reduce(op, whole, places_of(places), keep=keepdim), "bool")


@entry("logsumexp")
def logsumexp(x: Value, places: Any, keepdim: bool = False) -> Value:
    """log(sum(exp(x))), less the largest element first; an infinite one is left in place."""
    chosen = places_of(places)
    top = v.reduce("max", v.to_float(x), chosen, keep=True)
    top = where(binary("eq", unary("abs", top), math.inf), 0.0, top)
    total = v.reduce("sum", unary("exp", binary("sub", x, top)), chosen, keep=True)
    found = binary("add", unary("log", total), top)
    return found if keepdim else squeeze(found, chosen)


@entry("_softmax", "_safe_softmax")
def softmax(x: Value, place: int, *_: Any) -> Value:
    """exp(x - max) / sum."""
    top = v.reduce("max", v.to_float(x), [place], keep=True)
    powers = unary("exp", binary("sub", x, top))
    return binary("div", powers, v.reduce("sum", powers, [place], keep=True))


@entry("_log_softmax")
def log_softmax(x: Value, place: int, *_: Any) -> Value:
    """x - max - log(sum)."""
    top = v.reduce("max", v.to_float(x), [place], keep=True)
    shifted = binary("sub", x, top)
    total = v.reduce("sum", unary("exp", shifted), [place], keep=True)
    return binary("sub", shifted, unary("log", total))


@entry("var")
def variance(
    x: Value,
    places: Any = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    unbiased: bool | None = None,
) -> Value:
    """The sum of squared distances from the mean, over the number of elements less `correction`."""
    chosen = places_of(places)
    if isinstance(places, bool):
        chosen, unbiased = None, places
    less = (1.0 if unbiased in (None, True) else 0.0) if correction is None else float(correction)
    away = binary("sub", x, v.mean(x, chosen, keep=True))
    return v.mean(binary("mul", away, away), chosen, keep=keepdim, correction=less)


@entry("std")
def _std(x: Value, *arguments: Any, **options: Any) -> Value:
    return unary("sqrt", variance(x, *arguments, **options))


@entry("var_mean")
def _var_mean(
    x: Value, places: Any = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Value, Value]:
    spread = variance(x, places, keepdim, correction=correction)
    return spread, v.mean(x, places_of(places), keep=keepdim)


@entry("linalg_vector_norm", "norm")
def _vector_norm(
    x: Value, order: float = 2, places: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    chosen, magnitude = places_of(places), unary("abs", v.to_float(x))
    if order in (math.inf, -math.inf):
        return v.reduce("max" if order > 0 else "min", magnitude, chosen, keep=keepdim)
    if order == 1:
        return v.reduce("sum", magnitude, chosen, keep=keepdim)
    if order == 2:
        return unary("sqrt", v.reduce("sum", binary("mul", x, x), chosen, keep=keepdim))
    total = v.reduce("sum", binary("pow", magnitude, order), chosen, keep=keepdim)
    return binary("pow", total, binary("div", 1.0, order))


@entry("cumsum")
def _cumsum(x: Value, place: int, **_: Any) -> Value:
    return v.scan("cumsum", x, place % len(x.dims))


@entry("cumprod")
def _cumprod(x: Value, place: int, **_: Any) -> Value:
    return v.scan("cumprod", x, place % len(x.dims))
