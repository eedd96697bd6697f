"""A scrolling view of source text, highlighted."""

from __future__ import annotations

from pygments.token import Token  # type: ignore[import-untyped]
from textual.app import ComposeResult
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.widgets import Static

from kmint_tui.escapes import visible

LONGEST_HIGHLIGHTED = 40_000
"""Largest number of characters that are highlighted; a longer text would take too long."""

LEAST_LINES = 12


class CodeTheme(HighlightTheme):
    """Textual's colours, and those of the added and removed lines of a diff."""

    STYLES = HighlightTheme.STYLES | {
        Token.Generic.Inserted: "$text-success on $success 15%",
        Token.Generic.Deleted: "$text-error on $error 15%",
    }


class CodeView(ScrollableContainer, can_focus=True):
    """`show` replaces the text; with `follow` the end stays in view while it grows."""

    ALLOW_MAXIMIZE = True

    def compose(self) -> ComposeResult:
        yield Static("", classes="code", markup=False)

    def show_end(self, text: str) -> None:
        """Show the last lines of a text that grows; `show` shows the whole text once it is
        finished.
        """
        lines = text.splitlines()[-max(self.size.height, LEAST_LINES) :]
        # A text that fits the pane needs no new layout, which would draw the whole screen again.
        self.query_one(Static).update(_coloured("\n".join(lines), "python"), layout=False)

    def show(self, text: str, *, language: str = "python", top: bool = False) -> None:
        """Show this text, from its first line with `top`. Characters that could steer the terminal
        are written as escapes."""
        self.query_one(Static).update(_coloured(text, language))
        if top:
            self.scroll_home(animate=False)


def _coloured(text: str, language: str) -> Content:
    clean = visible(text)
    return (
        highlight(clean, language=language, theme=CodeTheme)
        if clean.strip() and len(clean) <= LONGEST_HIGHLIGHTED
        else Content(clean)
    )
