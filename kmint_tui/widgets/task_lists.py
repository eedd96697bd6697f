"""Operations, files with PyTorch code, and the functions of one, to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kmint_tui.core.op_search import find
from kmint_tui.core.own_function import functions_of, torch_files
from kmint_tui.paths import expanded
from referee.ops.spec import Op

ENDING = ".py"


class FunctionList(OptionList):
    """Shows the files below the working folder, or the functions of the file that is named.

    An option's id is the text of `--reference` that it stands for.
    """

    def show(self, wanted: str) -> None:
        """List the completions of `wanted`, which is a part of a path, or a file."""
        self.clear_options()
        path = expanded(wanted) if wanted.endswith(ENDING) else None
        if path is not None and path.is_file():
            found = [
                (f"{path.name}:{one.shown}", f"{wanted}:{one.name}") for one in functions_of(path)
            ]
        else:
            here = [str(file.relative_to(Path.cwd())) for file in torch_files(Path.cwd())]
            found = [(name, name) for name in here if wanted in name]
        self.add_options(Option(Content(shown), id=chosen) for shown, chosen in found)
        if found:
            self.highlighted = 0


class OpList(OptionList):
    """Finds operations as `kmint ops --search` does."""

    def show(self, ops: Iterable[Op], wanted: str) -> None:
        """Show the operations that match."""
        found = find(wanted, ops)
        self.clear_options()
        self.add_options(Option(Content(f"{op.name:<28} {op.title}"), id=op.name) for op in found)
        if found:
            self.highlighted = 0

    def choose_first(self) -> None:
        """Select the highlighted operation."""
        if self.option_count:
            self.action_select()
