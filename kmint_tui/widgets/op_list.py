"""The operations that match some words, to choose one."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from referee.ops.spec import Op


class OpList(OptionList):
    """Every word has to be in the name or the title."""

    def show(self, ops: Iterable[Op], wanted: str) -> None:
        """Show the operations that match."""
        words = wanted.lower().split()
        found = [op for op in ops if all(word in f"{op.name} {op.title}".lower() for word in words)]
        self.clear_options()
        self.add_options(Option(Content(f"{op.name:<28} {op.title}"), id=op.name) for op in found)
        if found:
            self.highlighted = 0

    def choose_first(self) -> None:
        """Select the highlighted operation."""
        if self.option_count:
            self.action_select()
