"""Axes: the loops of values. A dimension is a list of axes; an axis that two values share is one
loop.

Each dimension of an input starts as one axis. A reshape splits axes; an elementwise operation
unites the axes of its arguments. Both change an axis for all values at once. So values keep their
first axes, and `leaves` returns the present ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import ONE, ZERO, NotDivisible, Size, product

if TYPE_CHECKING:
    from kmint_tui.graph.expressions import Expression

_numbers = count()


class SameSize(OutOfScope):
    """Two whole dimensions meet, so they are equal although their expressions differ.

    Reading can begin again with that known.
    """

    def __init__(self, first: Size, second: Size) -> None:
        super().__init__(
            f"{first.expression} and {second.expression} are only equal at the given inputs"
        )
        self.first, self.second = first, second


@dataclass(eq=False)
class Axis:
    """One loop. `unrolled` axes are short and written out: the pieces of a concatenation."""

    size: Size
    unrolled: bool = False
    same: Axis | None = None
    parts: tuple[Axis, ...] = ()
    number: int = field(default_factory=lambda: next(_numbers))

    def __repr__(self) -> str:
        return f"axis{self.number}[{self.size.value}]"


def leaves(axis: Axis) -> list[Axis]:
    """The present axes in place of this axis, outermost first."""
    while axis.same is not None:
        axis = axis.same
    return [leaf for part in axis.parts for leaf in leaves(part)] if axis.parts else [axis]


def all_leaves(axes: Iterable[Axis]) -> list[Axis]:
    """`leaves` of several."""
    return [leaf for axis in axes for leaf in leaves(axis)]


def size_of(axes: Iterable[Axis]) -> Size:
    """How many elements the axes have together."""
    return product([leaf.size for leaf in all_leaves(axes)])


def split(axis: Axis, outer: Size) -> tuple[Axis, Axis]:
    """Make a leaf two axes, the outer of the given size. Raises NotDivisible."""
    inner = axis.size.divided_by(outer)
    if inner == outer:
        inner = replace(inner, apart=True)
    axis.parts = (Axis(outer, unrolled=axis.unrolled), Axis(inner, unrolled=axis.unrolled))
    return axis.parts


def unite(first: list[Axis], second: list[Axis]) -> None:
    """Let two dimensions run over the same axes. Raises OutOfScope if their sizes differ."""
    left, right = all_leaves(first), all_leaves(second)
    while left and right:
        one, other = left[-1], right[-1]
        if one is other or one.size == other.size:
            left.pop()
            right.pop()
            if one is not other:
                one.unrolled = one.unrolled or other.unrolled
                other.same = one
            continue
        if len(left) == len(right) == 1 and one.size.example == other.size.example:
            raise SameSize(one.size, other.size)
        try:
            if abs(one.size.value) > abs(other.size.value):
                left[-1:] = split(one, one.size.divided_by(other.size))
            else:
                right[-1:] = split(other, other.size.divided_by(one.size))
        except NotDivisible as error:
            raise OutOfScope(
                f"two dimensions are cut in ways that do not fit together: {error}"
            ) from None
    if left or right:
        raise OutOfScope("two dimensions of different sizes meet")


def regroup(axes: Iterable[Axis], sizes: list[Size]) -> list[list[Axis]]:
    """The axes dealt out to dimensions of the given sizes, in order. Raises OutOfScope."""
    pending = all_leaves(axes)
    dims: list[list[Axis]] = []
    for size in sizes:
        taken: list[Axis] = []
        while (done := size_of(taken)) != size:
            if not pending:
                raise OutOfScope("a reshape to another number of elements")
            axis = pending.pop(0)
            missing = size.divided_by(done)
            if axis.size.value <= missing.value and missing.value % axis.size.value == 0:
                taken.append(axis)
                continue
            try:
                outer, inner = split(axis, missing)
            except NotDivisible as error:
                raise OutOfScope(f"a reshape that cuts across dimensions: {error}") from None
            taken.append(outer)
            pending.insert(0, inner)
        dims.append(taken)
    if pending:
        raise OutOfScope("a reshape to another number of elements")
    return dims


@dataclass(frozen=True, eq=False)
class Index:
    """A position along one dimension: axes and values, each with a factor, and a constant."""

    terms: tuple[tuple[Axis, Size], ...] = ()
    offset: Size = ZERO
    values: tuple[tuple[Expression, Size], ...] = ()

    @classmethod
    def along(cls, axes: Iterable[Axis]) -> Index:
        """The position when the axes, outermost first, make up the dimension."""
        terms: list[tuple[Axis, Size]] = []
        step = ONE
        for axis in reversed(all_leaves(axes)):
            terms.append((axis, step))
            step = step * axis.size
        return cls(tuple(reversed(terms)))

    def scaled(self, factor: Size) -> Index:
        """This many times the position."""
        return Index(
            tuple((axis, step * factor) for axis, step in self.terms),
            self.offset * factor,
            tuple((value, step * factor) for value, step in self.values),
        )

    def plus(self, other: Index) -> Index:
        """The sum of two positions."""
        return Index(
            self.terms + other.terms, self.offset + other.offset, self.values + other.values
        )

    def resolved(self) -> Index:
        """The index in leaf axes, each once."""
        steps: dict[Axis, Size] = {}
        for axis, step in self.terms:
            inner = step
            for leaf in reversed(leaves(axis)):
                steps[leaf] = steps[leaf] + inner if leaf in steps else inner
                inner = inner * leaf.size
        return Index(
            tuple((axis, step) for axis, step in steps.items() if step.value),
            self.offset,
            self.values,
        )

    def replaced(self, positions: Mapping[Axis, Index]) -> Index:
        """The index with other positions in place of leaf axes."""
        found = self.resolved()
        total = Index((), found.offset, found.values)
        for axis, step in found.terms:
            total = total.plus(
                positions[axis].scaled(step) if axis in positions else Index(((axis, step),))
            )
        return total
