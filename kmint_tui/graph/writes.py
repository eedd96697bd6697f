"""The writes of a result: one for each piece of a concatenation, without conditions.

Pieces of one size are numbers of an unrolled axis, and are written out. Pieces of different sizes
have separate axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations

from kmint_tui.graph.axes import Axis, Index, all_leaves, leaves
from kmint_tui.graph.expressions import (
    Expression,
    Load,
    Part,
    Parts,
    Pieces,
    Pointwise,
    Position,
    Reduce,
    Scan,
    substitute,
    walk,
)
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value

COMBINE = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}
"""The operation on two elements that each reduction repeats."""
Axes = frozenset[Axis]


@dataclass(frozen=True, eq=False)
class Write:
    """An expression and the element of a tensor that it goes to.

    `axes` are all axes that it runs over, also those that it does not depend on.
    """

    tensor: str
    sizes: tuple[Size, ...]
    indices: tuple[Index, ...]
    expression: Expression
    axes: Axes


def writes_of(name: str, value: Value) -> list[Write]:
    """One write for each piece of a concatenation."""
    sizes = tuple(value.sizes)
    indices = tuple(Index.along(dim) for dim in value.dims)
    whole = Write(
        name,
        sizes,
        indices,
        value.expression,
        frozenset(leaf for dim in value.dims for leaf in all_leaves(dim)),
    )
    made = []
    for part in _parts_of(whole):
        unrolled = sorted((axis for axis in part.axes if axis.unrolled), key=lambda one: one.number)
        free = part.axes - set(unrolled)
        for positions in _positions(unrolled):
            expression = _written_out(substitute(part.expression, positions), {})
            places = tuple(index.replaced(positions) for index in part.indices)
            made.append(Write(name, sizes, places, expression, free))
    return made


def _parts_of(write: Write) -> list[Write]:
    """A write for each piece of unlike concatenations, unless a reduction needs them together."""
    reduced = {
        leaf
        for node in walk(write.expression)
        if isinstance(node, (Reduce, Scan))
        for leaf in all_leaves(node.axes)
    }
    for node in walk(write.expression):
        if not isinstance(node, Parts) or len(leaf := leaves(node.axis)) > 1:
            continue
        (axis,) = leaf
        if axis in write.axes - reduced and not axis.unrolled:
            return [one for piece in node.pieces for one in _parts_of(_at_part(write, axis, piece))]
    return [write]


def _at_part(write: Write, axis: Axis, piece: Part) -> Write:
    positions = {axis: piece.index}
    return replace(
        write,
        indices=tuple(index.replaced(positions) for index in write.indices),
        expression=substitute(write.expression, positions),
        axes=write.axes - {axis} | set(all_leaves(piece.axes)),
    )


def _positions(axes: Sequence[Axis]) -> list[dict[Axis, Index]]:
    counts = [range(axis.size.value) for axis in axes]
    return [
        dict(zip(axes, (Index((), Size.of(n)) for n in numbers), strict=True))
        for numbers in combinations(*counts)
    ]


def _written_out(root: Expression, done: dict[int, Expression]) -> Expression:
    """Without unrolled axes: a reduction along one becomes an operation on its pieces."""
    made = dict(done)
    for node in walk(root):
        made[id(node)] = _rebuilt(node, lambda child: made[id(child)])
    return made[id(root)]


def _rebuilt(node: Expression, of: Callable[[Expression], Expression]) -> Expression:
    match node:
        case Pointwise(arguments=arguments):
            return replace(node, arguments=tuple(map(of, arguments)))
        case Scan(axes=axes, argument=argument):
            if any(leaf.unrolled for leaf in all_leaves(axes)):
                raise OutOfScope("a scan along a dimension put together from pieces")
            return replace(node, argument=of(argument))
        case Load(indices=indices):
            return replace(node, indices=tuple(of_values(index, of) for index in indices))
        case Position(index=index):
            return replace(node, index=of_values(index, of))
        case Reduce(op=op, axes=axes, argument=argument):
            bound = all_leaves(axes)
            unrolled = [leaf for leaf in bound if leaf.unrolled]
            node.check()
            if not unrolled:
                return Reduce.of(node.kind, op, tuple(bound), of(argument))
            if op not in COMBINE:
                raise OutOfScope(f"{op} along a dimension put together from pieces")
            rest = tuple(leaf for leaf in bound if not leaf.unrolled)
            parts = [
                _written_out(substitute(argument, positions), {})
                for positions in _positions(unrolled)
            ]
            total: Expression | None = None
            for part in parts:
                one = Reduce.of(node.kind, op, rest, part) if rest else part
                total = one if total is None else Pointwise(node.kind, COMBINE[op], (total, one))
            assert total is not None
            return total
        case Parts(chosen=chosen):
            return of(chosen)
        case Pieces():
            # It is below a reduction or a write that puts a number in place of its axis.
            return node
    return node


def of_values(index: Index, of: Callable[[Expression], Expression]) -> Index:
    """The position with `of` applied to its values."""
    return replace(index, values=tuple((of(value), step) for value, step in index.values))
