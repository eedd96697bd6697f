"""Leaving: asks while a session runs, then waits until the smith and the referee are gone, so that no process is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

if TYPE_CHECKING:
    from kmint_tui.app import KmintApp


class Leave(ModalScreen[None]):
    """`ask` shows the question first. The application ends when everything is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "leave", "Quit", id="leave.yes", tooltip="Stop the session and quit; finished drafts are kept"),
        Binding("n,escape", "stay", "Stay", id="leave.no", tooltip="Go on"),
        Binding("left,right", "app.focus_next", "Other answer", show=False, id="leave.other", tooltip="Go to the other answer"),
    ]

    def __init__(self, *, ask: bool) -> None:
        super().__init__()
        self._asking = ask

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("A session is running" if self._asking else "Closing the smith and the referee …", classes="title")
            if self._asking:
                yield Label("Quitting stops it. Drafts that are done stay in the history, the rest is given up.")
                with Horizontal(classes="buttons"):
                    yield Button("Quit (y)", variant="error", id="yes", compact=True)
                    yield Button("Stay (n)", id="no", compact=True)

    def on_mount(self) -> None:
        if self._asking:
            self.query_one("#no").focus()
        else:
            self._close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._asking or action not in ("leave", "stay")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self.action_leave()
        else:
            self.action_stay()

    def action_leave(self) -> None:
        self._asking = False
        self.query_one(".title", Label).update("Closing the smith and the referee …")
        self.query("Button").remove()
        self._close()

    def action_stay(self) -> None:
        self.dismiss()

    @work(thread=True, exclusive=True, group="leave", exit_on_error=False)
    def _close(self) -> None:
        app = cast("KmintApp", self.app)
        try:
            if app.run_now is not None:
                app.run_now.abandon()
            app.engine.close()
        finally:
            app.call_from_thread(app.exit, 0)
