"""Views at computed positions of a dimension: windows, rotations, and parts put in their place."""

from __future__ import annotations

from dataclasses import replace

from kmint_tui.graph.axes import Axis, Index, size_of
from kmint_tui.graph.expressions import Position
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import ONE, Size
from kmint_tui.graph.values import Value, constant, pointwise, positions, scalar, to_float
from kmint_tui.graph.views import at, every, stack


def windows(
    value: Value,
    place: int,
    count: Size,
    length: Size,
    *,
    step: Size,
    apart: int = 1,
    before: int = 0,
    fill: float = 0.0,
) -> Value:
    """The windows along a dimension, which then counts them; a new last one has their elements.

    Windows begin `step` after each other, and elements of one are `apart`. The dimension continues
    with `fill` for `before` elements at both ends. Raises OutOfScope for a reshaped dimension.
    """
    outer, inner = ((Axis(size),) if size != ONE else () for size in (count, length))
    steps = [*((axis, step) for axis in outer), *((axis, Size.of(apart)) for axis in inner)]
    index = Index(tuple(steps), Size.of(-before))
    dims = (*value.dims[:place], outer, *value.dims[place + 1 :], inner)
    if not before:
        return replace(at(value, place, index, outer), dims=dims)
    # The other dimensions belong to the loaded element only.
    kept = tuple(
        dim if number in (place, len(value.dims)) else () for number, dim in enumerate(dims)
    )
    number = Value(Position("i", index), kept, "int64")
    last = scalar(size_of(value.dims[place]) - ONE, "i")
    inside = pointwise("and", pointwise("ge", number, constant(0)), pointwise("le", number, last))
    near = pointwise("minimum", pointwise("maximum", number, constant(0)), last)
    moved = at(value, place, Index(values=((near.expression, ONE),)), outer)
    return pointwise("where", inside, to_float(replace(moved, dims=dims)), constant(float(fill)))


def rolled(value: Value, place: int, shift: int) -> Value:
    """The elements along a dimension moved by `shift` places, from its end to its start."""
    size = size_of(value.dims[place])
    if not value.dims[place] or not shift:
        return value
    axis = Axis(size)
    number = Value(Position("i", Index(((axis, ONE),), Size.of(-shift))), ((axis,),), "int64")
    turned = pointwise("mod", number, scalar(size, "i"))
    return at(value, place, Index(values=((turned.expression, ONE),)), (axis,))


def put(value: Value, part: Value, place: int, start: Size, end: Size, step: int = 1) -> Value:
    """The tensor with `part` in place of every `step`-th element from `start` to before `end`."""
    whole = size_of(value.dims[place])
    if step != 1 and end == whole and start.value < step and whole.value % step == 0:
        pieces = [
            part if number == start.value else every(value, place, number, step)
            for number in range(step)
        ]
        made = stack(pieces, place + 1)
        both = (*made.dims[place], *made.dims[place + 1])
        return replace(made, dims=(*made.dims[:place], both, *made.dims[place + 2 :]))
    number = positions(value, place)
    away = pointwise("sub", number, scalar(start, "i")) if start.value else number
    inside = pointwise("ge", number, scalar(start, "i")) if start.value else None
    if end != whole:
        below = pointwise("lt", number, scalar(end, "i"))
        inside = below if inside is None else pointwise("and", inside, below)
    if step != 1:
        chosen = pointwise("eq", pointwise("mod", away, constant(step)), constant(0))
        inside = chosen if inside is None else pointwise("and", inside, chosen)
        away = pointwise("floor_div", away, constant(step))
    if inside is None:
        return part
    if part.dims[place]:
        last = scalar(size_of(part.dims[place]) - ONE, "i")
        near = pointwise("minimum", pointwise("maximum", away, constant(0)), last)
        dim = tuple(value.dims[place])
        part = at(part, place, Index(values=((near.expression, ONE),)), dim)
    if value.kind == "f":
        part = to_float(part)
    elif part.kind != value.kind:
        raise OutOfScope(f"a part of another kind, put into a tensor of {value.dtype}")
    return replace(pointwise("where", inside, part, value), dtype=value.dtype)
