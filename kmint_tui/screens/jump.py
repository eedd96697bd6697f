"""Jump mode: a letter on everything that can be focused; the letter goes there."""

from __future__ import annotations

from string import ascii_lowercase
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Label


class Jump(ModalScreen[Widget | None]):
    """Ends with the widget that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Stay", id="jump.cancel", tooltip="Stay where you are")
    ]

    def __init__(self, screen: Screen[None]) -> None:
        super().__init__()
        targets = [widget for widget in screen.focus_chain if widget.region.area]
        self._targets = dict(zip(ascii_lowercase, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, widget in self._targets.items():
            label = Label(letter, classes="jump")
            label.absolute_offset = Offset(widget.region.x, widget.region.y)
            yield label

    def on_key(self, event: events.Key) -> None:
        if event.character in self._targets:
            event.stop()
            self.dismiss(self._targets[event.character])

    def action_cancel(self) -> None:
        self.dismiss(None)
