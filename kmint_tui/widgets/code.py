"""A scrolling view of source text, highlighted."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.highlight import highlight
from textual.widgets import Static

LONGEST_HIGHLIGHTED = 40_000
"""Characters; longer text is shown plain, as highlighting it would take too long."""

LEAST_LINES = 12


class CodeView(ScrollableContainer, can_focus=True):
    """`show` replaces the text; with `follow` the end stays in view while it grows."""

    def compose(self) -> ComposeResult:
        yield Static("", classes="code", markup=False)

    def show_end(self, text: str) -> None:
        """Show the last lines of a text that grows; the rest is shown by `show` once it is finished."""
        lines = text.splitlines()[-max(self.size.height, LEAST_LINES) :]
        # What fits the pane needs no new layout, which would draw the whole screen again.
        self.query_one(Static).update(_coloured("\n".join(lines), "python"), layout=False)

    def show(self, text: str, *, language: str = "python", top: bool = False) -> None:
        """Show this text, from its first line with `top`. Control characters that could steer the terminal are shown as spaces."""
        self.query_one(Static).update(_coloured(text, language))
        if top:
            self.scroll_home(animate=False)


def _coloured(text: str, language: str) -> Content:
    clean = "".join(letter if letter in "\n\t" or letter.isprintable() else " " for letter in text)
    return highlight(clean, language=language) if clean.strip() and len(clean) <= LONGEST_HIGHLIGHTED else Content(clean)
