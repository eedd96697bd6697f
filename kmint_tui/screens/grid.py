"""Grid: one kernel timed over shapes and dtypes. Where nothing can be timed, it shows what would be, and why it is not."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from kmint_tui.cli.referee import no_gpu_reason
from kmint_tui.screens.base import KmintScreen

WHAT = (
    "A grid times one kernel at every combination of rows, columns and dtype against the fastest baseline, and names every cell at "
    "which it loses."
)


class GridScreen(KmintScreen):
    """This version of kmint does not measure grids from the interface yet."""

    mode = "grid"

    def body(self) -> ComposeResult:
        yield Static(id="empty", classes="empty", markup=False)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        reason = no_gpu_reason()
        there = f"Nothing can be timed here: {reason}." if reason else "This version of kmint does not measure grids from here yet."
        self.query_one("#empty", Static).update(f"No grid was measured.\n\n{WHAT}\n\n{there}")
