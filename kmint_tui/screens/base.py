"""What every screen shares: the bar of screens, the line of facts, the keys, and copying."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen

from kmint_tui.errors import KmintError
from kmint_tui.widgets.facts_bar import FactsBar
from kmint_tui.widgets.key_bar import KeyBar
from kmint_tui.widgets.mode_bar import ModeBar

if TYPE_CHECKING:
    from kmint_tui.app import KmintApp

VIEW = Binding.Group("View")
ACT = Binding.Group("Act")
COPY = Binding.Group("Copy")


class KmintScreen(Screen[None]):
    """One task. Subclasses set `mode`, yield their parts in `body`, and say in `commands` what they do as commands."""

    mode: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("C", "copy_command", "Copy command", show=False, id="copy.command", tooltip="Copy the kmint command for what can be done",
                group=COPY),
    ]  # fmt: skip

    @property
    def kmint(self) -> KmintApp:
        """The application, with its own type."""
        return cast("KmintApp", self.app)

    def compose(self) -> ComposeResult:
        yield ModeBar(self.mode)
        with Vertical(id="body"):
            yield from self.body()
        yield FactsBar(id="facts", markup=True)
        yield KeyBar(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """The parts of the screen."""
        yield from ()

    def commands(self) -> list[tuple[str, str]]:
        """What can be done now, each in a word or two with the `kmint` command that does the same; the main thing first."""
        return []

    def cli_command(self) -> str | None:
        """The command of the main thing; None where there is none."""
        found = self.commands()
        return found[0][1] if found else None

    def on_screen_resume(self) -> None:
        self.show_facts()

    def show_facts(self) -> None:
        """Show the facts as they are known now."""
        bars = self.query(FactsBar)
        if bars:
            bars.first().show(self.kmint.facts, self.kmint.holder)

    def action_copy_command(self) -> None:
        from kmint_tui.screens.command_list import CommandList

        found = self.commands()
        if not found:
            self.notify("Nothing is chosen that a command could do.", severity="warning")
        elif len(found) == 1:
            self.copy(found[0][1], "command")
        else:
            self.app.push_screen(CommandList(found), lambda command: self.copy(command, "command") if command else None)

    def copy(self, text: str, what: str) -> None:
        """Copy text to the clipboard and say so, with the text itself when it is short."""
        self.app.copy_to_clipboard(text)
        self.notify(text if len(text) <= 200 else f"{len(text.splitlines())} lines", title=f"copied: {what}", markup=False)

    def tell(self, error: Exception) -> None:
        """Show an error as a message with a way on."""
        if isinstance(error, KmintError):
            text = f"{error.message}\n{error.fix}" if error.fix else error.message
            self.notify(text, title=error.title, severity="error", timeout=12, markup=False)
        else:
            text = f"{type(error).__name__}: {error}"
            self.notify(text, title="kmint met an error of its own", severity="error", timeout=12, markup=False)
