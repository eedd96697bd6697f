"""Sums of squares around a mean in the same pass as the mean, as for a variance.

Each lane keeps the sum of squares around its own mean (Youngs and Cramer). Lanes, and parts of a
row, are joined around another centre (Chan). No large squares are subtracted from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kmint_tui.graph.program import Line, Stage


@dataclass(frozen=True)
class Centred:
    """The value `name` = sum((`of` - `centre`) ** 2), where `total` is the sum of `of`."""

    name: str
    of: str
    total: str
    centre: str

    @property
    def squares(self) -> str:
        """The name of the lanes' sums of squares."""
        return f"t{self.name[1:]}"

    @property
    def _sums(self) -> str:
        return f"t{self.total[1:]}"

    def start(self) -> str:
        """The statement before the first block."""
        return f"{self.squares} = tl.zeros((BLOCK,), dtype=tl.float32)"

    def step(self) -> Iterator[str]:
        """The statements for one block, before the lanes' sums take it in."""
        count, less = f"w{self.name[1:]}", f"d{self.name[1:]}"
        yield f"{count} = tl.cast(start // BLOCK, tl.float32)"
        yield f"{less} = tl.where(mask, {self.of} * {count} - {self._sums}, 0.0)"
        share = f"1.0 / (tl.maximum({count}, 1.0) * ({count} + 1.0))"
        yield f"{self.squares} += {less} * {less} * ({share})"

    def joined(self, count: str, centre: str) -> Iterator[str]:
        """The statements that join lanes of `count` elements each around a centre."""
        less = f"d{self.name[1:]}"
        mean = f"{self._sums} / tl.maximum({count}, 1)"
        yield f"{less} = tl.where({count} > 0, {mean} - {centre}, 0.0)"
        yield f"{self.name} = tl.sum({self.squares} + {count} * {less} * {less}, axis=0)"


def centred_sums(stage: Stage) -> dict[str, Centred]:
    """The sums of a stage that this form can replace, by name."""
    found = {}
    for line in stage.lines:
        if line.op == "sum" and line.kind == "f" and (one := _centred(line, stage)) is not None:
            found[line.name] = one
    return found


def _centred(squares: Line, stage: Stage) -> Centred | None:
    lines = {line.name: line for line in stage.lines}
    square = lines.get(squares.arguments[0])
    if square is None or square.op != "mul" or len(set(square.arguments)) > 1:
        return None
    less = lines.get(square.arguments[0])
    if less is None or less.op != "sub":
        return None
    of, centre = less.arguments
    if of not in lines or centre not in lines or "n" in lines[centre].over:
        return None
    for line in stage.lines:
        if line.op == "sum" and line.arguments[0] == of and line.kind == "f":
            return Centred(squares.name, of, line.name, centre)
    return None
