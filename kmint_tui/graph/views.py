"""Views of values: the same elements in other dimensions, parts of them, and several put together.

A view gives an expression other positions, down to its loads. Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kmint_tui.graph.axes import Axis, Index, all_leaves, regroup, size_of, split
from kmint_tui.graph.expressions import (
    Expression,
    Part,
    Parts,
    Pieces,
    Pointwise,
    Position,
    Scalar,
    number_at,
    substitute,
)
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import ONE, ZERO, Size
from kmint_tui.graph.values import Value, align, constant, fresh, pointwise, scalar, to_float
from kmint_tui.graph.vocabulary import Kind

MOST_PIECES = 8
"""Pieces of a concatenation or a slice: each is written out."""


def reshape(value: Value, sizes: Sequence[Size]) -> Value:
    """The same elements in other dimensions."""
    dims = regroup(
        [axis for dim in value.dims for axis in dim], [size for size in sizes if size.value != 1]
    )
    pending = iter(dims)
    return replace(
        value, dims=tuple(() if size.value == 1 else tuple(next(pending)) for size in sizes)
    )


def permute(value: Value, order: Sequence[int]) -> Value:
    """The tensor with its dimensions in another order."""
    return replace(value, dims=tuple(value.dims[place] for place in order))


def expand(value: Value, sizes: Sequence[Size | None]) -> Value:
    """The tensor with dimensions of size one repeated; None keeps a size. New dimensions come
    first.
    """
    padded = ((),) * (len(sizes) - len(value.dims)) + value.dims
    dims = [
        dim if dim or size is None or size.value == 1 else (Axis(size),)
        for dim, size in zip(padded, sizes, strict=True)
    ]
    return replace(value, dims=tuple(dims))


def at(value: Value, place: int, index: Index, dim: tuple[Axis, ...]) -> Value:
    """The value at other positions along one dimension, which becomes `dim`."""
    old = all_leaves(value.dims[place])
    positions = _spread(old, index)
    found = substitute(value.expression, positions)
    return replace(
        value, expression=found, dims=(*value.dims[:place], dim, *value.dims[place + 1 :])
    )


def _spread(old: list[Axis], index: Index) -> dict[Axis, Index]:
    """The positions along the axes of a dimension, whose position is `index`."""
    if len(old) < 2:
        return dict.fromkeys(old, index)
    number, step = number_at(index), ONE
    positions: dict[Axis, Index] = {}
    for axis in reversed(old):
        place = number if step == ONE else Pointwise("i", "floor_div", (number, Scalar("i", step)))
        if axis is not old[0]:
            place = Pointwise("i", "mod", (place, Scalar("i", axis.size)))
        positions[axis] = Index(values=((place, ONE),))
        step = step * axis.size
    return positions


def select(value: Value, place: int, position: Size) -> Value:
    """One element along a dimension, which the result no longer has."""
    old = all_leaves(value.dims[place])
    if len(old) > 1:
        raise OutOfScope("one element of a dimension that a reshape has cut")
    found = substitute(value.expression, {old[0]: Index((), position)}) if old else value.expression
    return replace(value, expression=found, dims=value.dims[:place] + value.dims[place + 1 :])


def part(value: Value, place: int, start: Size, length: Size) -> Value:
    """Consecutive elements along a dimension.

    Equal parts of the whole are unrolled pieces, and other parts are shifted positions.
    """
    whole = size_of(value.dims[place])
    if length == whole:
        return value
    if length.value == 0:
        raise OutOfScope("an empty slice")
    pieces = whole.value // length.value
    if (
        whole.value % length.value == 0
        and start.value % length.value == 0
        and pieces <= MOST_PIECES
        and length.value > 1
    ):
        outer, inner = _cut(value, place, Size.of(pieces))
        found = substitute(
            value.expression, {outer: Index((), Size.of(start.value // length.value))}
        )
        return replace(
            value,
            expression=found,
            dims=(*value.dims[:place], tuple(inner), *value.dims[place + 1 :]),
        )
    if length.value == 1:
        one = select(value, place, start)
        return replace(one, dims=(*one.dims[:place], (), *one.dims[place:]))
    axis = Axis(length)
    return at(value, place, Index(((axis, ONE),), start), (axis,))


def _cut(value: Value, place: int, pieces: Size) -> tuple[Axis, list[Axis]]:
    """Cut a dimension into equal pieces: the axis that counts them, and those within one."""
    axes = all_leaves(value.dims[place])
    if axes[0].size != pieces:
        if axes[0].size.value % pieces.value:
            raise OutOfScope("a part of a dimension that a reshape has cut")
        split(axes[0], pieces)
        axes = all_leaves(value.dims[place])
    axes[0].unrolled = True
    return axes[0], axes[1:]


def every(value: Value, place: int, start: int, step: int) -> Value:
    """Every n-th element along a dimension whose size is a multiple of n."""
    axes = all_leaves(value.dims[place])
    last = axes[-1] if axes else None
    if last is None or last.size.value % step or step > MOST_PIECES:
        raise OutOfScope("a slice with a step that does not divide the dimension")
    if last.size.value != step:
        split(last, last.size.divided_by(Size.of(step)))
        axes = all_leaves(value.dims[place])
    axes[-1].unrolled = True
    found = substitute(value.expression, {axes[-1]: Index((), Size.of(start))})
    return replace(
        value,
        expression=found,
        dims=(*value.dims[:place], tuple(axes[:-1]), *value.dims[place + 1 :]),
    )


def concatenate(values: Sequence[Value], place: int) -> Value:
    """Pieces one after the other along a dimension."""
    lengths = {size_of(value.dims[place]).value for value in values}
    if len(values) == 1:
        return values[0]
    if len(values) > MOST_PIECES:
        raise OutOfScope("a concatenation of many pieces")
    return _joined(values, place) if len(lengths) == 1 else _unlike(values, place)


def _unlike(values: Sequence[Value], place: int) -> Value:
    """Pieces of different sizes: each can be written alone, or chosen by the position."""
    made = _chosen(values, place)
    alone = [_alone(value, place) for value in values]
    pieces, start = [], ZERO
    for value in alone:
        axes = tuple(all_leaves(value.dims[place]))
        found = to_float(value) if made.kind == "f" else value
        pieces.append(Part(start, axes, found.expression))
        start = start + size_of(axes)
    (axis,) = made.dims[place]
    return replace(made, expression=Parts(made.kind, axis, tuple(pieces), made.expression))


def _alone(value: Value, place: int) -> Value:
    """The value with axes along a dimension that no other value has."""
    return fresh(value, set(all_leaves(value.dims[place])))


def _chosen(values: Sequence[Value], place: int) -> Value:
    """Pieces of different sizes: the position along the dimension chooses one for each element."""
    sizes = [size_of(value.dims[place]) for value in values]
    total = ZERO
    for size in sizes:
        total = total + size
    axis = Axis(total)
    behind = ((),) * (len(values[0].dims) - place - 1)
    number = Value(Position("i", Index(((axis, ONE),))), ((axis,), *behind), "int64")
    kinds = {value.kind for value in values}
    made: Value | None = None
    end = total
    for value, size in zip(reversed(values), reversed(sizes), strict=True):
        start = end - size
        inside = number
        if start.value:
            inside = pointwise("maximum", _less(inside, start), constant(0))
        if made is not None:
            inside = pointwise("minimum", inside, _less(scalar(size, "i"), ONE))
        moved = at(value, place, Index(values=((inside.expression, ONE),)), (axis,))
        moved = to_float(moved) if "f" in kinds else moved
        made = (
            moved
            if made is None
            else pointwise("where", pointwise("lt", number, scalar(end, "i")), moved, made)
        )
        end = start
    assert made is not None
    return replace(made, dtype=values[0].dtype)


def _less(value: Value, size: Size) -> Value:
    """An integer less a size."""
    return pointwise("sub", value, scalar(size, "i"))


def stack(values: Sequence[Value], place: int) -> Value:
    """Values side by side in a new dimension."""
    wide = [replace(value, dims=(*value.dims[:place], (), *value.dims[place:])) for value in values]
    if len(values) > MOST_PIECES:
        raise OutOfScope("a stack of many values")
    return wide[0] if len(values) == 1 else _joined(wide, place)


def _joined(values: Sequence[Value], place: int) -> Value:
    aligned, dims = align(*values)
    counter = Axis(Size.of(len(values)), unrolled=True)
    kinds = {value.kind for value in aligned}
    kind: Kind = "f" if "f" in kinds else "i" if "i" in kinds else "b"
    found = Pieces(kind, counter, tuple(value.expression for value in aligned))
    dims = (*dims[:place], (counter, *dims[place]), *dims[place + 1 :])
    return Value(found, dims, values[0].dtype)


def flip(value: Value, place: int) -> Value:
    """The elements along a dimension in the opposite order."""
    axes = all_leaves(value.dims[place])
    if not axes:
        return value
    if len(axes) > 1:
        raise OutOfScope("a flip of a dimension that a reshape has cut")
    axis = Axis(axes[0].size)
    turned = Index(((axis, Size.of(-1)),), axes[0].size - ONE)
    return at(value, place, turned, (axis,))


def diagonal(value: Value, offset: int, rows: int, columns: int) -> Value:
    """The elements whose position along `columns` is `offset` more than along `rows`, put last."""
    size = size_of(value.dims[rows])
    if size_of(value.dims[columns]) != size:
        raise OutOfScope("a diagonal of dimensions of different sizes")
    axis = Axis(size - Size.of(abs(offset)))
    for place, start in ((rows, max(0, -offset)), (columns, max(0, offset))):
        value = at(value, place, Index(((axis, ONE),), Size.of(start)), (axis,))
    kept = [dim for place, dim in enumerate(value.dims) if place not in (rows, columns)]
    return replace(value, dims=(*kept, (axis,)))


def take(value: Value, place: int, index: Value) -> Value:
    """The elements at computed positions along a dimension: `index` is aligned with the result.

    The other dimensions of `value` and those of `index` are broadcast together. The dimension
    itself becomes that of `index`.
    """
    axes = all_leaves(value.dims[place])
    if not axes:
        return value
    if len(axes) > 1:
        raise OutOfScope("a gather along a dimension that a reshape has cut")
    hole = Axis(axes[0].size)
    found = substitute(value.expression, {axes[0]: Index.along([hole])})
    outside = replace(
        value, expression=found, dims=(*value.dims[:place], (), *value.dims[place + 1 :])
    )
    (aligned, position), dims = align(outside, index)
    made = substitute(aligned.expression, {hole: _place_of(position.expression)})
    return Value(made, dims, value.dtype)


def pick(value: Value, place: int, indices: Sequence[Value]) -> Value:
    """The elements at computed positions along consecutive dimensions from `place` on.

    The positions are broadcast together, and their dimensions replace those.
    """
    aligned, picked = align(*indices)
    before, after = value.dims[:place], value.dims[place + len(indices) :]
    positions: dict[Axis, Index] = {}
    for dim, index in zip(value.dims[place : place + len(indices)], aligned, strict=True):
        axes = all_leaves(dim)
        if len(axes) > 1:
            raise OutOfScope("an index into a dimension that a reshape has cut")
        positions |= {axes[0]: _place_of(index.expression)} if axes else {}
    clash = {leaf for dim in picked for leaf in all_leaves(dim)} & {
        leaf for dim in value.dims for leaf in all_leaves(dim)
    }
    if clash:
        raise OutOfScope("an index made from the tensor that it reads")
    return Value(substitute(value.expression, positions), (*before, *picked, *after), value.dtype)


def _place_of(expression: Expression) -> Index:
    return (
        expression.index if isinstance(expression, Position) else Index(values=((expression, ONE),))
    )


def padded(value: Value, place: int, before: int, after: int, fill: float) -> Value:
    """A dimension with elements of `fill` before and after it; negative numbers cut."""
    size = size_of(value.dims[place])
    total = Size.of(before) + size + Size.of(after)
    axes = all_leaves(value.dims[place])
    if len(axes) != 1:
        raise OutOfScope("padding of a dimension that a reshape has cut")
    axis = Axis(total)
    low, high = Size.of(before), size
    place_in = Value(Position("i", Index(((axis, ONE),), -low)), ((axis,),), "int64")
    inside = pointwise(
        "and", pointwise("ge", place_in, constant(0)), pointwise("lt", place_in, scalar(high, "i"))
    )
    clamped = pointwise(
        "minimum",
        pointwise("maximum", place_in, constant(0)),
        pointwise("sub", scalar(high, "i"), constant(1)),
    )
    moved = at(value, place, Index(values=((clamped.expression, ONE),)), (axis,))
    behind = len(value.dims) - place - 1
    condition = replace(inside, dims=(*inside.dims, *((),) * behind))
    return replace(
        pointwise("where", condition, moved, constant(fill, value.dtype)), dtype=value.dtype
    )
