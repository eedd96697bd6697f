"""The line on top: every screen with its number, the present one marked. A click goes there."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Label

MODE_TITLES = (
    ("mint", "Mint"),
    ("draft", "Draft"),
    ("history", "History"),
    ("crowns", "Crowns"),
    ("grid", "Grid"),
    ("models", "Models"),
    ("doctor", "Doctor"),
)


class ModeBar(Horizontal):
    """`current` is the mode of the screen that shows the bar."""

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        yield Label("kmint", classes="brand")
        for number, (mode, title) in enumerate(MODE_TITLES, start=1):
            marked = "-current" if mode == self._current else ""
            yield Label(f"[@click=app.show_mode('{mode}')]{number} {title}[/]", classes=f"mode {marked}")
