"""The parts that every screen shares: the bar of screens, the line of facts, the keys, copying."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen

from kmint_tui.core import command_line
from kmint_tui.core.facts import NO_GPU
from kmint_tui.errors import KmintError
from kmint_tui.screens import editor
from kmint_tui.widgets.screen_bars import FactsBar, KeyBar, ModeBar

if TYPE_CHECKING:
    from kmint_tui.app import KmintApp

VIEW = Binding.Group("View")
ACT = Binding.Group("Act")
COPY = Binding.Group("Copy")


def key(
    keys: str,
    action: str,
    title: str,
    identity: str,
    tooltip: str,
    group: Binding.Group,
    *,
    show: bool = False,
    shown_as: str | None = None,
) -> Binding:
    """A binding of a screen; `show` puts it into the line of keys at the bottom."""
    return Binding(keys, action, title, show, shown_as, id=identity, tooltip=tooltip, group=group)


class KmintScreen(Screen[None]):
    """One task. Subclasses set `mode`, yield their parts in `body`, and give in `commands` the same
    actions as commands.
    """

    mode: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        key("C", "copy_command", "Copy command", "copy.command", "Copy the kmint command of an action here", COPY),
        key("z", "zoom", "Zoom", "view.zoom", "Enlarge the focused part; z again shows all parts", VIEW),
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
        """The present actions, each in a word or two with the `kmint` command that does the same;
        the main action first.
        """
        return []

    def cli_command(self) -> str | None:
        """The command of the main action; None where there is none."""
        found = self.commands()
        return found[0][1] if found else None

    def on_screen_resume(self) -> None:
        self.show_facts()

    def show_facts(self) -> None:
        """Show the facts as they are known now."""
        bars = self.query(FactsBar)
        if bars:
            bars.first().show(self.kmint.facts, self.kmint.holder, self.kmint.connecting)
        modes, facts = self.query(ModeBar), self.kmint.facts
        if modes and facts is not None:
            modes.first().mark(can_time=facts.gpu != NO_GPU)

    def action_zoom(self) -> None:
        """Let the focused part fill the screen, or show all parts again."""
        if self.maximized is not None:
            self.minimize()
        elif self.focused is None or not self.maximize(self.focused):
            self.notify("Focus the code or a table first (tab).", severity="warning")

    def edit(self, source: str, name: str, op: str) -> None:
        """Open a copy of the source in the user's editor; offer the command that judges the copy."""
        try:
            words = editor.editor()
            path = editor.copy_to_edit(source, name)
        except KmintError as error:
            self.tell(error)
            return
        try:
            with self.app.suspend():
                changed = editor.edited(words, path)
        except SuspendNotSupported:
            self.notify(str(path), title="this terminal cannot start an editor", markup=False)
            return
        if changed:
            self.copy(
                command_line.command("judge", str(path), "--op", op), "judge the edited kernel"
            )
        else:
            self.notify(str(path), title="unchanged", markup=False)

    def action_copy_command(self) -> None:
        from kmint_tui.screens.command_list import CommandList

        found = self.commands()
        if not found:
            self.notify("Nothing is chosen that a command could do.", severity="warning")
        elif len(found) == 1:
            self.copy(found[0][1], "command")
        else:
            self.app.push_screen(
                CommandList(found),
                lambda command: self.copy(command, "command") if command else None,
            )

    def copy(self, text: str, what: str) -> None:
        """Copy text to the clipboard and say so, with the text itself when it is short."""
        self.app.copy_to_clipboard(text)
        self.notify(
            text if len(text) <= 200 else f"{len(text.splitlines())} lines",
            title=f"copied: {what}",
            markup=False,
        )

    def tell(self, error: Exception) -> None:
        """Show an error as a message with a way on."""
        if isinstance(error, KmintError):
            text = f"{error.message}\n{error.fix}" if error.fix else error.message
            self.notify(text, title=error.title, severity="error", timeout=12, markup=False)
        else:
            text = f"{type(error).__name__}: {error}"
            self.notify(text, title="an error in kmint", severity="error", timeout=12, markup=False)
