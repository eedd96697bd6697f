"""Sums of exponentials in the same pass as their maximum, as in an online softmax.

The plain form reads a row once for the maximum and once more for the sum. Here each lane keeps its
own maximum, and scales its sum whenever that grows. The lanes are joined after the last block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kmint_tui.graph.program import Line, Stage

_CONSTANT = re.compile(r"k(\d+)")


@dataclass(frozen=True)
class Online:
    """The value `name` = sum(exp(`of` - `centre`)).

    `maximum` is the largest of `of`. `centre` is the same, or a constant where that is infinite.
    """

    name: str
    of: str
    maximum: str
    centre: str

    @property
    def total(self) -> str:
        """The name of the lanes' sums."""
        return f"t{self.name[1:]}"

    @property
    def _top(self) -> str:
        return f"t{self.maximum[1:]}"

    def start(self) -> str:
        """The statement before the first block."""
        return f"{self.total} = tl.zeros((BLOCK,), dtype=tl.float32)"

    def step(self) -> Iterator[str]:
        """The statements for one block, before the lanes' maxima take it in.

        A lane without a finite value yet has the sum 0. NaN stays NaN, as in the plain form.
        """
        masked, new = f"x{self.name[1:]}", f"n{self.name[1:]}"
        yield f'{masked} = tl.where(mask, {self.of}, float("-inf"))'
        yield f"{new} = tl.maximum({self._top}, {masked})"
        yield f"{new} = {_finite(new)}"
        yield (
            f"{self.total} = {self.total} * tl.exp({self._top} - {new}) + tl.exp({masked} - {new})"
        )

    def end(self) -> str:
        """The statement that joins the lanes. A row of minus infinity alone is as in the plain form."""
        joined = f"tl.sum({self.total} * tl.exp({self._top} - {self.centre}), axis=0)"
        none = f'{self.centre} == float("-inf")'
        return f'{self.name} = tl.where({none}, float("nan"), {joined})'

    def partial(self) -> Iterator[str]:
        """The statements that join the lanes of a part of a row, whose maximum is `maximum`."""
        new = f"n{self.name[1:]}"
        yield f"{new} = {_finite(self.maximum)}"
        yield f"{self.name} = tl.sum({self.total} * tl.exp({self._top} - {new}), axis=0)"


def _finite(maximum: str) -> str:
    return f'tl.where(tl.abs({maximum}) < float("inf"), {maximum}, 0.0)'


def online_sums(stage: Stage) -> dict[str, Online]:
    """The sums of a stage that an online form can replace, by name."""
    found = {}
    for line in stage.lines:
        if line.op == "sum" and line.kind == "f" and (one := _online(line, stage)) is not None:
            found[line.name] = one
    return found


def _online(total: Line, stage: Stage) -> Online | None:
    lines = {line.name: line for line in stage.lines}
    power = lines.get(total.arguments[0])
    if power is None or power.op != "exp":
        return None
    less = lines.get(power.arguments[0])
    if less is None or less.op != "sub":
        return None
    of, centre = less.arguments
    maximum = _maximum(lines.get(centre), stage)
    top = lines.get(maximum)
    if top is None or top.op != "max" or top.arguments[0] != of or top.kind != "f":
        return None
    return Online(total.name, of, maximum, centre)


def _maximum(centre: Line | None, stage: Stage) -> str:
    """The name of the value that a centre is, but for a finite constant under a condition."""
    if centre is None:
        return ""
    if centre.op == "where" and (found := _CONSTANT.fullmatch(centre.arguments[2])):
        finite = math.isfinite(stage.constants[int(found[1])])
        return centre.arguments[1] if finite else ""
    return centre.name
