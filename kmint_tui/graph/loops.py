"""The loops of a stage: its axes as rows and as columns.

Axes that are adjacent in every tensor are merged into one. The position along a merged axis comes
from the row `r` or the column `c` by `//` and `%`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kmint_tui.graph.axes import Axis, Index
from kmint_tui.graph.sizes import ONE, Size, product
from kmint_tui.graph.stages import Group


@dataclass
class Loop:
    """The merged axes of the rows or of the columns, outermost first, with their sizes.

    The innermost of several merged axes represents all of them.
    """

    axes: list[Axis] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)

    @property
    def size(self) -> Size:
        """How many rows or columns there are."""
        return product(self.sizes)

    def terms(
        self, index: Index, name: str, size_name: Callable[[Size], str]
    ) -> Iterator[tuple[str, Size]]:
        """The parts of `index` that the loop adds, as text in its number `name`, with factors."""
        steps = dict(index.terms)
        first = 0
        while first < len(self.axes):
            if self.axes[first] not in steps:
                first += 1
                continue
            last = first
            while last + 1 < len(self.axes) and self._goes_on(steps, last):
                last += 1
            inner = product(self.sizes[last + 1 :])
            text = name if inner == ONE else f"{name} // {size_name(inner)}"
            if first > 0:
                text = f"{text} % {size_name(product(self.sizes[first : last + 1]))}"
            yield text, steps[self.axes[last]]
            first = last + 1

    def _goes_on(self, steps: dict[Axis, Size], at: int) -> bool:
        """True if the index steps through this axis and the next one as through one axis."""
        following = self.axes[at + 1]
        return following in steps and steps[self.axes[at]] == steps[following] * self.sizes[at + 1]


def loops_of(group: Group, accesses: Sequence[Index]) -> tuple[Loop, Loop]:
    """The rows and the columns. `accesses` are the flat places of all loads and stores."""
    order = _order(group.rows | group.columns, accesses)
    rows = [axis for axis in order if axis in group.rows]
    columns = [axis for axis in order if axis in group.columns]
    if columns:
        return _merged(rows, accesses), _merged(columns, accesses)
    whole = _merged(rows, accesses)
    return Loop(whole.axes[:-1], whole.sizes[:-1]), Loop(whole.axes[-1:], whole.sizes[-1:])


def _order(axes: frozenset[Axis], accesses: Sequence[Index]) -> list[Axis]:
    """Slowest to fastest in the first access that runs over the most axes."""
    best: list[Axis] = []
    for index in accesses:
        terms = [(abs(step.value), axis) for axis, step in index.resolved().terms if axis in axes]
        if len(terms) > len(best):
            best = [axis for _, axis in sorted(terms, key=lambda term: (-term[0], term[1].number))]
    return [*sorted(axes - set(best), key=lambda axis: axis.number), *best]


def _merged(axes: Sequence[Axis], accesses: Sequence[Index]) -> Loop:
    """The axes, with those merged that every access steps through as through one."""
    loop = Loop()
    for axis in axes:
        if loop.axes and all(_continues(index, loop.axes[-1], axis) for index in accesses):
            loop.axes[-1], loop.sizes[-1] = axis, loop.sizes[-1] * axis.size
        else:
            loop.axes.append(axis)
            loop.sizes.append(axis.size)
    return loop


def _continues(index: Index, outer: Axis, inner: Axis) -> bool:
    steps = dict(index.terms)
    if inner not in steps or outer not in steps:
        return inner not in steps and outer not in steps
    return steps[outer] == steps[inner] * inner.size
