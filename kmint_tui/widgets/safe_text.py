"""The last filter of a line of text before the terminal gets it: it removes the characters that
could steer the terminal.

Every widget's lines pass here: tables, titles, notices, tooltips, inputs. The filter removes
characters without width and replaces halves of characters, so no line changes its length. Parts
that show long text of strangers write escapes visibly before (`escapes.visible`).
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from kmint_tui.escapes import without_unsafe


class SafeText(LineFilter):
    """The filter. Textual's own control sequences are no text of a line, and stay."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments with safe text, in the same styles."""
        return [
            segment if segment.control else Segment(without_unsafe(segment.text), segment.style)
            for segment in segments
        ]
