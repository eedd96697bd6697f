"""Pooling: a reduction of each window of the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph.aten.pointwise import binary
from kmint_tui.graph.aten.table import entry
from kmint_tui.graph.axes import size_of
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import ONE, NotDivisible, Size
from kmint_tui.graph.values import Value
from kmint_tui.graph.windows import windows


def _each(given: Sequence[int], count: int) -> list[int]:
    """A number for each dimension; one number is for all."""
    numbers = list(given)
    if not all(isinstance(number, int) for number in numbers):
        raise OutOfScope("a pooling whose window depends on a size that varies")
    return numbers * count if len(numbers) == 1 else numbers


def _windows(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    fill: float,
) -> Value:
    """All windows, with a new last dimension for each dimension of a window."""
    count = len(kernel)
    lengths, pads, gaps = _each(kernel, count), _each(padding, count), _each(dilation, count)
    steps = _each(stride, count) if len(stride) else lengths
    first = len(x.dims) - count
    for number, (length, step, pad, gap) in enumerate(zip(lengths, steps, pads, gaps, strict=True)):
        left = size_of(x.dims[first + number]) + Size.of(2 * pad - gap * (length - 1) - 1)
        x = windows(
            x,
            first + number,
            left.over(step) + ONE,
            Size.of(length),
            step=Size.of(step),
            apart=gap,
            before=pad,
            fill=fill,
        )
    return x


@entry("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, None]:
    _check(ceil_mode)
    found = _windows(v.to_float(x), kernel, stride, padding, dilation, -math.inf)
    return v.reduce("max", found, range(-len(kernel), 0)), None


@entry("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    _check(ceil_mode)
    if not count_include_pad and any(padding):
        raise OutOfScope("an average pooling that leaves the padding out of its count")
    found = _windows(v.to_float(x), kernel, stride, padding, (1,), 0.0)
    places = range(-len(kernel), 0)
    if divisor_override is None:
        return v.mean(found, places)
    return binary("div", v.reduce("sum", found, places), float(divisor_override))


def _check(ceil_mode: bool) -> None:
    if ceil_mode:
        raise OutOfScope("a pooling with ceil_mode")


@entry("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def _adaptive_avg(x: Value, sizes: Sequence[Any]) -> Value:
    return v.mean(_parts(x, sizes), range(-len(sizes), 0))


@entry("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max(x: Value, sizes: Sequence[Any]) -> tuple[Value, None]:
    return v.reduce("max", _parts(v.to_float(x), sizes), range(-len(sizes), 0)), None


def _parts(x: Value, sizes: Sequence[Any]) -> Value:
    """The last dimensions cut into parts of equal length, as many as `sizes` say."""
    first = len(x.dims) - len(sizes)
    for number, parts in enumerate(_each(sizes, len(sizes))):
        try:
            length = size_of(x.dims[first + number]).divided_by(Size.of(parts))
        except NotDivisible as error:
            raise OutOfScope(f"an adaptive pooling to windows of several sizes: {error}") from None
        x = windows(x, first + number, Size.of(parts), length, step=length)
    return x
