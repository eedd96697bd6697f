"""Saving: asks for a folder, has the referee judge the file as it will stand, writes it with its
receipt and its test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from kmint_tui import paths
from kmint_tui.core.run import Failure, failure_of

if TYPE_CHECKING:
    pass


class Saving(ModalScreen[None]):
    """Stays open until the files are written, so that a refusal can be answered with another
    folder.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape", "dismiss", "Close", id="save.close", tooltip="Close; a save under way goes on"
        ),
        Binding(
            "f2",
            "copy_command",
            "Copy command",
            id="save.command",
            tooltip="Copy the kmint command that does the same",
        ),
    ]

    @dataclass
    class Done(Message):
        """Lines on the saved files, or the failure."""

        lines: tuple[str, ...]
        failure: Failure | None

    def __init__(
        self, what: str, save: Callable[[Path], tuple[str, ...]], command: Callable[[str], str]
    ) -> None:
        """`save` writes into a folder and returns lines on the files. `command` makes of a folder
        the `kmint` command that does the same.
        """
        super().__init__()
        self._what, self._into, self._command = what, save, command
        self._busy = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(f"Save {self._what}", classes="title", markup=False)
            yield Label(
                "Folder to save into; the kernel, its receipt and its test are written there."
            )
            yield Input(placeholder="my_project/kernels", compact=True, id="folder")
            yield Static("", id="said", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        folder = event.value.strip()
        if not folder or self._busy:
            return
        self._busy = True
        self._say("The referee judges the file as it will stand …")
        self._save(paths.expanded(folder))

    @work(thread=True, exclusive=True, group="save", exit_on_error=False)
    def _save(self, folder: Path) -> None:
        try:
            message = self.Done(self._into(folder), None)
        except Exception as error:
            message = self.Done((), failure_of(error))
        self.post_message(message)

    @on(Done)
    def _done(self, message: Done) -> None:
        self._busy = False
        failure = message.failure
        if failure is not None:
            self._say(
                "\n".join(
                    part for part in (f"{failure.title}: {failure.message}", failure.fix) if part
                )
            )
            return
        self.app.notify(
            "\n".join(message.lines), title=f"saved {self._what}", markup=False, timeout=20
        )
        self.dismiss()

    def action_copy_command(self) -> None:
        text = self._command(self.query_one(Input).value.strip() or "DIR")
        self.app.copy_to_clipboard(text)
        self.app.notify(text, title="copied: command", markup=False)

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(text)
