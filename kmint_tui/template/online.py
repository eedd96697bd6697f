"""Sums of exponentials in the same pass as their maximum, as in an online softmax.

The plain form reads a row once for the maximum and once more for the sum. Here each lane keeps its
own maximum, and scales its sum whenever that grows. The lanes are joined after the last block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kmint_tui.graph.program import Line, Stage


@dataclass(frozen=True)
class Online:
    """The value `name` = sum(exp(`of` - `maximum`)), where `maximum` is the largest of `of`."""

    name: str
    of: str
    maximum: str

    @property
    def total(self) -> str:
        """The name of the lanes' sums."""
        return f"t{self.name[1:]}"

    def step(self) -> Iterator[str]:
        """The statements for one block, before the lanes' maxima take it in.

        A lane without a finite value yet has the sum 0. NaN and positive infinity stay NaN, as in
        the plain form.
        """
        top, new = f"t{self.maximum[1:]}", f"n{self.name[1:]}"
        yield f'{new} = tl.maximum({top}, tl.where(mask, {self.of}, float("-inf")))'
        yield f"{self.total} = {self.total} * tl.exp({top} - {new})"
        yield f"{self.total} += tl.where(mask, tl.exp({self.of} - {new}), 0.0)"
        yield f'{self.total} = tl.where({new} == float("-inf"), 0.0, {self.total})'

    def end(self) -> str:
        """The statement that joins the lanes. A row of minus infinity alone is NaN, as in the plain form."""
        top = f"t{self.maximum[1:]}"
        scaled = f"{self.total} * tl.exp({top} - {self.maximum})"
        joined = f'tl.sum(tl.where({top} == float("-inf"), 0.0, {scaled}), axis=0)'
        return f'{self.name} = tl.where({self.maximum} == float("-inf"), float("nan"), {joined})'


def online_sums(stage: Stage) -> dict[str, Online]:
    """The sums of a stage that an online form can replace, by name."""
    lines = {line.name: line for line in stage.lines}
    found = {}
    for line in stage.lines:
        if line.op == "sum" and line.kind == "f" and (one := _online(line, lines)) is not None:
            found[line.name] = one
    return found


def _online(total: Line, lines: dict[str, Line]) -> Online | None:
    power = lines.get(total.arguments[0])
    if power is None or power.op != "exp":
        return None
    less = lines.get(power.arguments[0])
    if less is None or less.op != "sub":
        return None
    of, maximum = less.arguments
    top = lines.get(maximum)
    if top is None or top.op != "max" or top.arguments[0] != of or top.kind != "f":
        return None
    return Online(total.name, of, maximum)
