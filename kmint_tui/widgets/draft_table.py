"""The live table of drafts in referee order: how far each got reads from left to right."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from kmint_tui.core.session_state import LiveDraft, LiveSession
from kmint_tui.core.stages import STAGES, SYMBOLS
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled

_FIRST_TOKENS = 64
"""A draft turns from waiting to writing within its first tokens."""

_SHORT = {"screen": "scr", "trace": "trc", "compile": "cmp", "correct": "cor", "honest": "hon"}


class DraftTable(Table):
    """Short column titles where the terminal is narrow."""

    def shape(self, *, narrow: bool, session: LiveSession) -> None:
        """Set the columns for this width and show all drafts."""
        stages = [(_SHORT[stage], 3) if narrow else (stage, len(stage)) for stage in STAGES]
        times = [("time", 7), ("ratio", 6)] if narrow else [("device time", 11), ("ratio", 7)]
        key = self.key
        columns = [("draft", 5), ("tokens", 6), *stages, *times]
        used = (
            sum(width + 2 * self.cell_padding for _, width in columns) + 2 * self.cell_padding + 1
        )
        self.head(*columns, ("why", max(24, self.app.size.width - used)))
        self.fill(
            (str(row.index), self._cells(row, session.best)) for row in session.drafts.values()
        )
        self.go_to(key)

    def show_tokens(self, session: LiveSession, changed: Iterable[int]) -> None:
        """Show how much of these drafts is written, where nothing else about them changed."""
        for index in changed:
            row = session.drafts[index]
            self.update_cell(str(index), "tokens", _tokens(row))
            if row.tokens <= _FIRST_TOKENS:
                self.renew(str(index), self._cells(row, None))

    def show_changes(self, session: LiveSession, changed: Iterable[int]) -> None:
        """Show the drafts of these numbers anew."""
        best = session.best
        for index in changed:
            row, cells = session.drafts[index], self._cells(session.drafts[index], best)
            if str(index) in self.rows:
                self.renew(str(index), cells)
            else:
                self.add_row(*cells, key=str(row.index))

    def _cells(self, row: LiveDraft, best: int | None) -> list[Text]:
        outcome = (
            row.verdict.verdict
            if row.verdict
            else "busy"
            if row.phase in ("writing", "judging")
            else "plain"
        )
        number = styled(
            self.app,
            f"{'★' if row.index == best else ' '}{row.index:>3}",
            "win" if row.index == best else outcome if outcome == "rejected" else "plain",
        )
        marks = [styled(self.app, SYMBOLS[mark], mark) for mark in row.stage_marks]
        time, gained = row.microseconds, row.ratio
        return [
            number,
            _tokens(row),
            *marks,
            Text(f"{time:.1f} us" if time else ""),
            styled(self.app, f"{gained:.2f}x" if gained else "", outcome),
            styled(self.app, row.brief, outcome),
        ]


def _tokens(row: LiveDraft) -> Text:
    return Text(f"{row.tokens:>6}" if row.tokens else "")
