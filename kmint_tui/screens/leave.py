"""Leaving: asks while something is under way, then waits until the smith and the referee are gone,
so that no process is left.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

if TYPE_CHECKING:
    from kmint_tui.app import KmintApp


LAST_SECONDS = 3.0
"""After a signal the process ends this long after its children did, also where the terminal is gone
and writing to it blocks.
"""
CLOSING = "Closing the smith and the referee …"


class Leave(ModalScreen[None]):
    """`ask` shows the question first. The application ends with exit code `code` when everything is
    closed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "y",
            "leave",
            "Quit",
            id="leave.yes",
            tooltip="Stop the session and quit; finished drafts are kept",
        ),
        Binding("n,escape", "stay", "Stay", id="leave.no", tooltip="Go on"),
        Binding(
            "left,right",
            "app.focus_next",
            "Other answer",
            show=False,
            id="leave.other",
            tooltip="Go to the other answer",
        ),
    ]

    def __init__(self, *, ask: bool, code: int = 0) -> None:
        super().__init__()
        self.asking = ask
        self._code = code

    def compose(self) -> ComposeResult:
        app = cast("KmintApp", self.app)
        under_way = [*(["a session"] if app.run_now is not None else []), *app.jobs.weighty]
        with Vertical(classes="dialog"):
            yield Label(
                f"Under way: {', '.join(under_way)}" if self.asking else CLOSING,
                classes="title",
                markup=False,
            )
            if self.asking:
                yield Label(
                    "Quitting ends it. Finished parts are kept: drafts in the history, parts of a pull, cells of a grid."
                )
                with Horizontal(classes="buttons"):
                    yield Button("Quit (y)", variant="error", id="yes", compact=True)
                    yield Button("Stay (n)", id="no", compact=True)

    def on_mount(self) -> None:
        if self.asking:
            self.query_one("#no").focus()
        else:
            self._close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.asking or action not in ("leave", "stay")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self.action_leave()
        else:
            self.action_stay()

    def action_leave(self) -> None:
        self.asking = False
        self.query_one(".title", Label).update(CLOSING)
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
            app.jobs.cancel_all()
            app.engine.close()
        finally:
            if self._code:
                last = threading.Timer(LAST_SECONDS, os._exit, (self._code,))
                last.daemon = True
                last.start()
            app.call_from_thread(app.exit, self._code, self._code)
