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
    """One task. Subclasses set `mode`, yield their parts in `body`, and say in `cli_command` what they do as a command."""

    mode: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("C", "copy_command", "Copy command", show=False, id="copy.command", tooltip="Copy the kmint command that does the same",
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

    def cli_command(self) -> str | None:
        """The `kmint` command that does what this screen shows or would do; None where there is none."""
        return None

    def on_screen_resume(self) -> None:
        self.show_facts()

    def show_facts(self) -> None:
        """Show the facts as they are known now."""
        self.query_one(FactsBar).show(self.kmint.facts, self.kmint.holder)

    def action_copy_command(self) -> None:
        command = self.cli_command()
        if command is None:
            self.notify("Nothing is chosen that a command could do.", severity="warning")
        else:
            self.copy(command, "command")

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
