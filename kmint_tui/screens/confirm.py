"""A question with two answers, for what cannot be undone; and a question for a line of text."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label


class Confirm(ModalScreen[bool]):
    """Ends with True for yes. Escape is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes", tooltip="Do it"),
        Binding("n,escape", "answer(False)", "No", id="confirm.no", tooltip="Leave everything as it is"),
        Binding("left,right", "app.focus_next", "Other answer", show=False, id="confirm.other", tooltip="Go to the other answer"),
    ]

    def __init__(self, question: str, detail: str, yes: str) -> None:
        super().__init__()
        self._question, self._detail, self._yes = question, detail, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="title", markup=False)
            yield Label(self._detail, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(f"{self._yes} (y)", variant="error", id="yes", compact=True)
                yield Button("No (n)", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Ask(ModalScreen[str | None]):
    """Ends with the text, or None. Enter is yes, escape is no."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="ask.cancel", tooltip="Leave everything as it is")]

    def __init__(self, question: str, detail: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._question, self._detail, self._value, self._placeholder = question, detail, value, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="title", markup=False)
            yield Label(self._detail, markup=False)
            yield Input(self._value, placeholder=self._placeholder, compact=True)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if text := event.value.strip():
            self.dismiss(text)

    def action_cancel(self) -> None:
        self.dismiss(None)
