"""Expressions: one element of a value as a tree over axes.

An expression names the axes that it runs over. `substitute` gives it other positions, down to the
loads. Views work that way: a slice, a flip or a gather of a computed value is the same expression
at other positions.

Kernels write tanh by the sigmoid. Near zero that loses bits of float32. A bfloat16 or a sum with
larger numbers does not need these bits; a float32 that is only scaled afterwards does, as in a soft
cap. `exact` gives the form that keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kmint_tui.graph.axes import Axis, Index, all_leaves, leaves
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.vocabulary import REVERSED, SCANS, Kind

_SCALES = ("mul", "div", "neg")


@dataclass(frozen=True, eq=False)
class Expression:
    """One element. `kind` is that of `vocabulary.py`."""

    kind: Kind

    @property
    def children(self) -> tuple[Expression, ...]:
        """The direct parts of the expression."""
        return ()


@dataclass(frozen=True, eq=False)
class Load(Expression):
    """An element of a tensor, one index a dimension."""

    tensor: str
    indices: tuple[Index, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return tuple(value for index in self.indices for value, _ in index.values)


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """A number in the function's code."""

    value: float | int | bool


@dataclass(frozen=True, eq=False)
class Scalar(Expression):
    """A number that the host knows: an argument of the function by name, or a size."""

    value: str | Size


@dataclass(frozen=True, eq=False)
class Position(Expression):
    """The position of an element along axes: `arange`."""

    index: Index

    @property
    def children(self) -> tuple[Expression, ...]:
        return tuple(value for value, _ in self.index.values)


@dataclass(frozen=True, eq=False)
class Pointwise(Expression):
    """An operation on elements at the same place."""

    op: str
    arguments: tuple[Expression, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True, eq=False)
class Reduce(Expression):
    """A reduction of all elements along `axes`.

    `outer` are the axes that it depends on. None of them may become one of `axes` later.
    """

    op: str
    axes: tuple[Axis, ...]
    argument: Expression
    outer: tuple[Axis, ...] = ()

    @classmethod
    def of(cls, kind: Kind, op: str, axes: tuple[Axis, ...], argument: Expression) -> Reduce:
        """The reduction, with the axes that it depends on."""
        return cls(kind, op, axes, argument, tuple(free_axes(argument) - set(all_leaves(axes))))

    def check(self) -> None:
        """Raise OutOfScope if a dimension that it keeps was united with one that it reduces."""
        if set(all_leaves(self.outer)) & set(all_leaves(self.axes)):
            raise OutOfScope("one dimension is reduced and kept at once, as for a matrix product")

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.argument,)


@dataclass(frozen=True, eq=False)
class Scan(Expression):
    """The sum or product of the elements along `axes` up to this one."""

    op: str
    axes: tuple[Axis, ...]
    argument: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.argument,)


@dataclass(frozen=True, eq=False)
class Pieces(Expression):
    """A concatenation: one piece after the other along `axis`, which is unrolled."""

    axis: Axis
    pieces: tuple[Expression, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.pieces


@dataclass(frozen=True)
class Part:
    """One piece of a `Parts`: its first position, the axes along which it runs, and its element."""

    start: Size
    axes: tuple[Axis, ...]
    expression: Expression

    @property
    def index(self) -> Index:
        """The position in the whole."""
        return Index.along(self.axes).plus(Index((), self.start))


@dataclass(frozen=True, eq=False)
class Parts(Expression):
    """A concatenation of pieces of different sizes along `axis`.

    `chosen` is the same element by conditions on the position. The axes of a piece belong to no
    other expression, so a piece can be written alone.
    """

    axis: Axis
    pieces: tuple[Part, ...]
    chosen: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.chosen,)


def walk(root: Expression) -> Iterator[Expression]:
    """Every expression below and the root, each once, arguments first."""
    done: set[int] = set()
    pending: list[tuple[Expression, bool]] = [(root, False)]
    while pending:
        node, entered = pending.pop()
        if id(node) in done:
            continue
        if entered:
            done.add(id(node))
            yield node
        else:
            pending.append((node, True))
            pending += [(child, False) for child in reversed(node.children)]


def free_axes(root: Expression, known: dict[int, frozenset[Axis]] | None = None) -> frozenset[Axis]:
    """The leaf axes that the value depends on. `known` caches the result for each node."""
    known = {} if known is None else known
    for node in walk(root):
        if id(node) in known:
            continue
        below: frozenset[Axis] = (
            frozenset().union(*(known[id(child)] for child in node.children))
            if node.children
            else frozenset()
        )
        match node:
            case Load(indices=indices):
                below |= {axis for index in indices for axis, _ in index.resolved().terms}
            case Position(index=index):
                below |= {axis for axis, _ in index.resolved().terms}
            case Reduce(axes=axes):
                below -= set(all_leaves(axes))
            case Scan(axes=axes):
                below |= set(all_leaves(axes))
            case Pieces(axis=axis):
                below |= set(leaves(axis))
        known[id(node)] = below
    return known[id(root)]


def substitute(
    root: Expression, positions: Mapping[Axis, Index], done: dict[int, Expression] | None = None
) -> Expression:
    """The expression at other positions along some leaf axes.

    Raises OutOfScope if a scan, a reduction or a concatenation prevents that.
    """
    done = {} if done is None else done
    if not positions:
        return root
    if id(root) in done:
        return done[id(root)]
    made = _substituted(root, positions, done)
    done[id(root)] = made
    return made


def _substituted(
    node: Expression, positions: Mapping[Axis, Index], done: dict[int, Expression]
) -> Expression:
    match node:
        case Load(indices=indices):
            return replace(
                node,
                indices=tuple(
                    _with_values(index.replaced(positions), positions, done) for index in indices
                ),
            )
        case Position(index=index):
            return replace(node, index=_with_values(index.replaced(positions), positions, done))
        case Pointwise(arguments=arguments):
            return replace(
                node,
                arguments=tuple(substitute(argument, positions, done) for argument in arguments),
            )
        case Reduce(axes=axes, argument=argument):
            bound = set(all_leaves(axes))
            kept = {axis: index for axis, index in positions.items() if axis not in bound}
            _check_capture(bound, kept, argument)
            node.check()
            # Other positions give other expressions, so they need a cache for themselves.
            made = substitute(argument, kept, done if len(kept) == len(positions) else {})
            return Reduce.of(node.kind, node.op, axes, made)
        case Scan():
            return _scan_at(node, positions, done)
        case Pieces(axis=axis, pieces=pieces):
            return _piece_at(node, axis, pieces, positions, done)
        case Parts():
            return _part_at(node, positions, done)
    return node


def _with_values(
    index: Index, positions: Mapping[Axis, Index], done: dict[int, Expression]
) -> Index:
    return replace(
        index,
        values=tuple((substitute(value, positions, done), step) for value, step in index.values),
    )


def _check_capture(bound: set[Axis], positions: Mapping[Axis, Index], argument: Expression) -> None:
    used = {axis for index in positions.values() for axis, _ in index.resolved().terms}
    used |= {
        axis
        for index in positions.values()
        for value, _ in index.values
        for axis in free_axes(value)
    }
    if used & bound and free_axes(argument) & set(positions):
        raise OutOfScope("one dimension is reduced and run over at once, as for a matrix product")


def _scan_at(
    node: Scan, positions: Mapping[Axis, Index], done: dict[int, Expression]
) -> Expression:
    """A scan moves along with its argument when it is renamed or turned round as a whole."""
    scanned = all_leaves(node.axes)
    moved = {axis: index for axis, index in positions.items() if axis in scanned}
    if not moved:
        return replace(node, argument=substitute(node.argument, positions, done))
    if len(scanned) == 1 and len(moved) == 1:
        index = moved[scanned[0]].resolved()
        if len(index.terms) == 1 and not index.values:
            (axis, step), size = index.terms[0], scanned[0].size
            argument = substitute(node.argument, positions, done)
            if step.value == 1 and not index.offset.value and axis.size == size:
                return Scan(node.kind, node.op, (axis,), argument)
            if step.value == -1 and index.offset.value == size.value - 1 and axis.size == size:
                plain = node.op.removesuffix(REVERSED)
                turned = plain if node.op != plain else plain + REVERSED
                assert plain in SCANS
                return Scan(node.kind, turned, (axis,), argument)
    raise OutOfScope("only a part of a scan's result is used")


def number_at(index: Index) -> Expression:
    """The position as an integer expression."""
    (value, step) = index.values[0] if len(index.values) == 1 else (None, None)
    plain = not index.terms and not index.offset.value and step is not None and step.value == 1
    return value if plain and value is not None else Position("i", index)


def _piece_at(
    node: Pieces,
    axis: Axis,
    pieces: tuple[Expression, ...],
    positions: Mapping[Axis, Index],
    done: dict[int, Expression],
) -> Expression:
    leaf = leaves(axis)
    made = tuple(substitute(piece, positions, done) for piece in pieces)
    if len(leaf) != 1:
        raise OutOfScope("the pieces of a concatenation are cut again")
    if leaf[0] not in positions:
        return Pieces(node.kind, leaf[0], made)
    index = positions[leaf[0]].resolved()
    if not index.terms and not index.values:
        return made[index.offset.value]
    if (
        len(index.terms) == 1
        and not index.values
        and index.terms[0][1].value == 1
        and not index.offset.value
    ):
        return Pieces(node.kind, index.terms[0][0], made)
    number, chosen = number_at(index), made[-1]
    for place in range(len(made) - 2, -1, -1):
        here = Pointwise("b", "eq", (number, Constant("i", place)))
        chosen = Pointwise(node.kind, "where", (here, made[place], chosen))
    return chosen


def _part_at(
    node: Parts, positions: Mapping[Axis, Index], done: dict[int, Expression]
) -> Expression:
    """One piece where the positions are all of that piece; else the choice by conditions."""
    leaf = leaves(node.axis)
    chosen = substitute(node.chosen, positions, done)
    if len(leaf) > 1:
        return chosen
    index = positions[leaf[0]].resolved() if leaf[0] in positions else Index.along(leaf)
    for piece in node.pieces:
        if _same_place(index, piece.index):
            return substitute(piece.expression, positions, done)
    renamed = index.terms[0][0] if index.terms else leaf[0]
    if not _same_place(index, Index.along([renamed])) or renamed.size != leaf[0].size:
        return chosen
    pieces = tuple(
        replace(piece, expression=substitute(piece.expression, positions, done))
        for piece in node.pieces
    )
    return Parts(node.kind, renamed, pieces, chosen)


def _same_place(one: Index, other: Index) -> bool:
    first, second = one.resolved(), other.resolved()
    return (
        not first.values
        and first.offset == second.offset
        and dict(first.terms) == dict(second.terms)
    )


def exact(root: Expression) -> Expression:
    """The expression without a tanh that is only scaled."""
    match root:
        case Pointwise(op="tanh", arguments=(x,)):
            return _exact_tanh(x)
        case Pointwise(op=op, arguments=arguments) if op in _SCALES:
            made = tuple(map(exact, arguments))
            same = all(one is other for one, other in zip(made, arguments, strict=True))
            return root if same else replace(root, arguments=made)
    return root


def _exact_tanh(x: Expression) -> Expression:
    """tanh by expm1 of a negative number, which neither cancels nor overflows."""

    def of(op: str, *arguments: Expression) -> Expression:
        return Pointwise("f", op, arguments)

    power = of("expm1", of("mul", of("abs", x), Constant("f", -2.0)))
    negative = of("div", power, of("add", power, Constant("f", 2.0)))
    below = Pointwise("b", "lt", (x, Constant("f", 0.0)))
    return of("where", below, negative, of("neg", negative))
