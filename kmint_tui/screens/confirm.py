"""A question with two answers, for an action without undo; and a question for a line of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, Label

COPY_KEY = "f2"


class Confirm(ModalScreen[bool]):
    """Ends with True for yes. Escape is no. `command` is the `kmint` command that does the same as
    yes.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            COPY_KEY,
            "copy_command",
            "Copy command",
            id="confirm.command",
            tooltip="Copy the kmint command that does the same",
        ),
        Binding("y", "answer(True)", "Yes", id="confirm.yes", tooltip="Do it"),
        Binding(
            "n,escape", "answer(False)", "No", id="confirm.no", tooltip="Leave everything as it is"
        ),
        Binding(
            "left,right",
            "app.focus_next",
            "Other answer",
            show=False,
            id="confirm.other",
            tooltip="Go to the other answer",
        ),
    ]

    def __init__(self, question: str, detail: str, yes: str, command: str | None = None) -> None:
        super().__init__()
        self._question, self._detail, self._yes, self._command = question, detail, yes, command

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="title", markup=False)
            yield Label(self._detail, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(f"{self._yes} (y)", variant="error", id="yes", compact=True)
                yield Button("No (n)", id="no", compact=True)
            if self._command is not None:
                yield Label(_same(self._command), classes="command", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "copy_command" or self._command is not None

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def action_copy_command(self) -> None:
        _copy(self, self._command)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Ask(ModalScreen[str | None]):
    """Ends with the text, or None. Enter is yes, escape is no. `command` makes of the text the
    `kmint` command that does the same.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="ask.cancel", tooltip="Leave everything as it is"),
        Binding(
            COPY_KEY,
            "copy_command",
            "Copy command",
            id="ask.command",
            tooltip="Copy the kmint command that does the same",
        ),
    ]

    def __init__(
        self,
        question: str,
        detail: str,
        value: str = "",
        placeholder: str = "",
        command: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._question, self._detail, self._value, self._placeholder = (
            question,
            detail,
            value,
            placeholder,
        )
        self._command = command

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="title", markup=False)
            yield Label(self._detail, markup=False)
            yield Input(self._value, placeholder=self._placeholder, compact=True)
            if self._command is not None:
                yield Label("", classes="command", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "copy_command" or self._command is not None

    @on(Input.Changed)
    def _changed(self) -> None:
        if self._command is not None:
            self.query_one(".command", Label).update(_same(self._written(self._command)))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if text := event.value.strip():
            self.dismiss(text)

    def action_copy_command(self) -> None:
        if self._command is not None:
            _copy(self, self._written(self._command))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _written(self, command: Callable[[str], str]) -> str:
        return command(self.query_one(Input).value.strip() or self._placeholder)


def _same(command: str) -> str:
    return f"the same as: {command}   ({COPY_KEY} copies)"


def _copy(screen: Screen[Any], command: str | None) -> None:
    if command is not None:
        screen.app.copy_to_clipboard(command)
        screen.app.notify(command, title="copied: command", markup=False)
