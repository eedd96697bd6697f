"""Reductions of a row in blocks: each lane keeps a separate result, and the last step joins them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kmint_tui.graph.program import Line, Stage, is_rowwise
from kmint_tui.template.statements import identity

_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class Reduction:
    """The lanes of a sum, a maximum or a minimum."""

    line: Line

    @property
    def total(self) -> str:
        """The name of the lanes' results."""
        return f"t{self.line.name[1:]}"

    @property
    def dtype(self) -> str:
        """Their type in torch and in Triton, without the prefix."""
        return "float32" if self.line.kind == "f" else "int64"

    def start(self) -> str:
        """The statement before the first block."""
        return f"{self.total} = tl.full((BLOCK,), {identity(self.line)}, dtype=tl.{self.dtype})"

    def step(self) -> str:
        """The statement for one block."""
        masked = f"tl.where(mask, {self.line.arguments[0]}, {identity(self.line)})"
        if self.line.op == "sum":
            return f"{self.total} += {masked}"
        return f"{self.total} = tl.{self.line.op}imum({self.total}, {masked})"

    def end(self) -> str:
        """The statement that joins the lanes."""
        return f"{self.line.name} = tl.{self.line.op}({self.total}, axis=0)"


def names_in(texts: Iterable[str]) -> set[str]:
    """The names that these texts mention."""
    return {word for text in texts for word in _NAME.findall(text)}


def needed(stage: Stage, wanted: Collection[str], known: Collection[str] = ()) -> list[Line]:
    """The lines that the `wanted` names need, in order.

    The values of `known` lines are there, so that nothing is needed for them.
    """
    names, found = set(wanted), list[Line]()
    for line in reversed(stage.lines):
        if line.name in names and line.name not in known:
            found.append(line)
            names |= names_in(line.arguments)
    return found[::-1]


def reductions(stage: Stage) -> list[Line]:
    """The lines that reduce or scan a row."""
    return [line for line in stage.lines if is_rowwise(line.op)]


def narrow(stage: Stage) -> set[str]:
    """The names of values that have no columns."""
    return {line.name for line in stage.lines if "n" not in line.over}
