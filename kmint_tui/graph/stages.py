"""Groups values into stages: it decides which reductions share a loop and which need another
kernel.

A stage has row axes and column axes. Each of its reductions runs along all columns of a row. An
earlier stage writes a reduction that does not fit into a temporary tensor. Pieces of concatenations
are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kmint_tui.graph.axes import Axis, Index, all_leaves
from kmint_tui.graph.expressions import (
    Expression,
    Load,
    Pointwise,
    Position,
    Reduce,
    Scan,
    free_axes,
    walk,
)
from kmint_tui.graph.sizes import ONE, Size, product
from kmint_tui.graph.values import Value
from kmint_tui.graph.vocabulary import Kind
from kmint_tui.graph.writes import COMBINE, Axes, Write, of_values, writes_of

MOST_PIECES = 2
"""Largest number of pieces of a result in one stage; no smith was trained on more."""
SHORT_ROW = 256
"""Elements of the shortest row that a reduction to one number has, if dimensions allow it."""


@dataclass(eq=False)
class Group:
    """The writes of one stage. `copies` marks a stage that only copies."""

    rows: Axes
    columns: Axes
    copies: bool = False
    writes: list[Write] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Scratch:
    """A tensor between stages."""

    name: str
    sizes: tuple[Size, ...]
    kind: Kind

    @property
    def dtype(self) -> str:
        """torch's name for its dtype, without the prefix."""
        return "float32" if self.kind == "f" else "int64"


def groups_of(
    outputs: Sequence[tuple[str, Value]], unused: Callable[[str], str] = str
) -> tuple[list[Group], list[Scratch]]:
    """The stages in order, and the tensors between them. Raises OutOfScope.

    `unused` turns the name of such a tensor into one that no argument has.
    """
    grouping = _Grouping(unused)
    for name, value in outputs:
        writes = writes_of(name, value)
        copies = [one for one in writes if len(writes) > MOST_PIECES and _copies(one)]
        for write in writes:
            if write not in copies:
                grouping.add(write)
        for write in copies:
            grouping.add(write, copies=len(copies) < len(writes))
    return grouping.groups, grouping.scratch


def _copies(write: Write) -> bool:
    """True if it copies elements of a tensor."""
    return isinstance(write.expression, Load)


class _Grouping:
    """Collects writes into stages, in an order in which each stage finds its inputs."""

    def __init__(self, unused: Callable[[str], str]) -> None:
        self._unused = unused
        self.groups: list[Group] = []
        self.scratch: list[Scratch] = []
        self._kept: dict[int, Load] = {}
        self._made_in: dict[str, int] = {}

    def add(self, write: Write, *, copies: bool = False) -> None:
        """Put a write into a stage, after those that it needs; with `copies` into one of copies."""
        known: dict[int, Axes] = {}
        expression = _by_rows_first(write.expression)
        columns = _columns(expression, known)
        every = free_axes(expression, known) | write.axes | columns
        if columns:
            misfits = _misfits(expression, known, every - columns, columns)
            if misfits:
                kept = _together(expression, known, misfits)
                made = {id(node): self._store(node, known) for node in kept}
                expression = _with(expression, made)
                self.add(replace(write, expression=expression))
                return
        self._place(replace(write, expression=expression), every, columns, copies)

    def _store(self, node: Expression, known: dict[int, Axes]) -> Load:
        """Let an earlier stage write a reduction, or a number computed from several. Returns its
        load.
        """
        if id(node) in self._kept:
            return self._kept[id(node)]
        axes = _in_order(free_axes(node), node)
        name = self._unused(f"t{len(self.scratch)}")
        sizes = tuple(axis.size for axis in axes)
        indices = tuple(Index.along([axis]) for axis in axes)
        self.scratch.append(Scratch(name, sizes, node.kind))
        self.add(Write(name, sizes, indices, node, frozenset(axes)))
        load = Load(node.kind, name, indices)
        self._kept[id(node)] = load
        return load

    def _place(self, write: Write, every: Axes, columns: Axes, copies: bool) -> None:
        reads = [
            self._made_in[node.tensor]
            for node in walk(write.expression)
            if isinstance(node, Load) and node.tensor in self._made_in
        ]
        first = max(reads, default=-1) + 1
        for number in range(first, len(self.groups)):
            group = self.groups[number]
            if group.copies != copies:
                continue
            whole = group.rows | group.columns
            if (columns and group.columns == columns and group.rows == every - columns) or (
                not columns and every == whole
            ):
                break
            if columns and not group.columns and group.rows == every:
                group.rows, group.columns = every - columns, columns
                break
            if not columns and every == group.rows and group.columns:
                break
        else:
            number = len(self.groups)
            self.groups.append(Group(every - columns if columns else every, columns, copies))
        self.groups[number].writes.append(write)
        self._made_in[write.tensor] = max(number, self._made_in.get(write.tensor, 0))


def _columns(expression: Expression, known: dict[int, Axes]) -> Axes:
    """The axes of the outermost reduction or scan that runs over the most."""
    free_axes(expression, known)
    outermost: list[Axes] = []
    pending, seen = [expression], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (Reduce, Scan)):
            outermost.append(frozenset(all_leaves(node.axes)))
        else:
            pending += node.children
    if not outermost:
        return frozenset()
    return max(
        outermost,
        key=lambda axes: (outermost.count(axes), product([axis.size for axis in axes]).example),
    )


def _misfits(
    expression: Expression, known: dict[int, Axes], rows: Axes, columns: Axes
) -> list[Reduce | Scan]:
    """The outermost reductions and scans that this stage's loops cannot do."""
    found: list[Reduce | Scan] = []
    pending, seen = [expression], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (Reduce, Scan)):
            own = frozenset(all_leaves(node.axes))
            lies_on = known[id(node)] - own if isinstance(node, Scan) else known[id(node)]
            if own != columns or lies_on != rows:
                found.append(node)
                continue
        pending += node.children
    return found


def _by_rows_first(root: Expression) -> Expression:
    """Cut reductions of several axes to one number in two, so that many programs share the work.

    The first reduces rows, and the second reduces their results.
    """
    known: dict[int, Axes] = {}
    free_axes(root, known)
    done: dict[int, Expression] = {}
    for node in walk(root):
        made = _swapped(node, done)
        if (
            isinstance(made, Reduce)
            and not known[id(node)]
            and made.op in COMBINE
            and len(axes := all_leaves(made.axes)) > 1
        ):
            order = _in_order(frozenset(axes), made.argument)
            cut = len(order) - 1
            while cut > 1 and product([axis.size for axis in order[cut:]]).example < SHORT_ROW:
                cut -= 1
            inner = Reduce.of(made.kind, made.op, tuple(order[cut:]), made.argument)
            made = Reduce.of(made.kind, made.op, tuple(order[:cut]), inner)
        done[id(node)] = made
    return done[id(root)]


def _together(
    root: Expression, known: dict[int, Axes], parts: Sequence[Expression]
) -> list[Expression]:
    """The outermost numbers below the root that combine several of the parts on the same axes.

    One tensor then replaces several. The other parts stay, and so does the root, which is the
    number that is written.
    """
    below: dict[int, frozenset[int]] = {}
    for node in walk(root):
        inner = frozenset().union(*(below[id(child)] for child in node.children))
        below[id(node)] = frozenset({id(node)}) if any(node is one for one in parts) else inner
    lies_on = {id(one): known[id(one)] for one in parts}
    found: list[Expression] = []
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        inside = below[id(node)]
        alike = node.kind == "f" and {known[id(node)]} == {lies_on[one] for one in inside}
        several = alike and len(inside) > 1 and node is not root
        if several or any(node is one for one in parts):
            found.append(node)
        elif inside:
            pending += node.children
    return found


def _with(root: Expression, made: dict[int, Load]) -> Expression:
    done: dict[int, Expression] = dict(made)
    for node in walk(root):
        if id(node) not in done:
            done[id(node)] = _swapped(node, done)
    return done[id(root)]


def _swapped(node: Expression, done: dict[int, Expression]) -> Expression:
    if all(done[id(child)] is child for child in node.children):
        return node
    match node:
        case Pointwise(arguments=arguments):
            return replace(node, arguments=tuple(done[id(one)] for one in arguments))
        case Reduce(op=op, axes=axes, argument=argument):
            return Reduce.of(node.kind, op, axes, done[id(argument)])
        case Scan(argument=argument):
            return replace(node, argument=done[id(argument)])
        case Load(indices=indices):
            return replace(
                node,
                indices=tuple(of_values(index, lambda value: done[id(value)]) for index in indices),
            )
        case Position(index=index):
            return replace(node, index=of_values(index, lambda value: done[id(value)]))
    return node


def _in_order(axes: Axes, expression: Expression) -> list[Axis]:
    """The axes from slowest to fastest in memory, as in the load that runs over most of them."""
    best: list[Axis] = []
    for node in walk(expression):
        if isinstance(node, (Load, Position)):
            indices = node.indices if isinstance(node, Load) else (node.index,)
            found = [
                axis for index in indices for axis, _ in index.resolved().terms if axis in axes
            ]
            found = list(dict.fromkeys(found))
            best = found if len(found) > len(best) else best
    return [*sorted(axes - set(best), key=lambda axis: axis.number), *best]


def flat_index(sizes: Sequence[Size], indices: Sequence[Index]) -> Index:
    """The place of an element in a contiguous tensor."""
    total, step = Index(), ONE
    for size, index in zip(reversed(sizes), reversed(indices), strict=True):
        total = total.plus(index.scaled(step))
        step = step * size
    return total.resolved()
