"""A list of the `kmint` commands for the actions of a screen. The user copies one of them."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option


class CommandList(ModalScreen[str | None]):
    """Ends with the command that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Close", id="commands.close", tooltip="Copy nothing"),
        Binding(
            "j",
            "move('cursor_down')",
            "Down",
            show=False,
            id="commands.down",
            tooltip="Next command",
        ),
        Binding(
            "k", "move('cursor_up')", "Up", show=False, id="commands.up", tooltip="Command before"
        ),
    ]

    def __init__(self, commands: list[tuple[str, str]]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        widest = max(len(what) for what, _ in self._commands)
        with Vertical(classes="dialog wide"):
            yield Label("Copy which command?", classes="title")
            yield OptionList(
                *(
                    Option(Content(f"{what:<{widest}}  {command}"))
                    for what, command in self._commands
                ),
                compact=True,
            )

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = 0

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._commands[event.option_index][1])

    def action_move(self, way: str) -> None:
        options = self.query_one(OptionList)
        options.action_cursor_down() if way == "cursor_down" else options.action_cursor_up()

    def action_cancel(self) -> None:
        self.dismiss(None)
