"""Crowns: who reigns, by operation and device. Where nothing can be timed, it says why there are none."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from kmint_tui.cli.referee import no_gpu_reason
from kmint_tui.screens.base import KmintScreen

WHAT = (
    "A crown belongs to an operation on one device with one set of versions. It changes hands only when a kernel wins a head-to-head "
    "replay against the one that holds it."
)


class CrownsScreen(KmintScreen):
    """This version of kmint does not award crowns yet; nothing is listed that was not won."""

    mode = "crowns"

    def body(self) -> ComposeResult:
        yield Static(id="empty", classes="empty", markup=False)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        reason = no_gpu_reason()
        there = f"Nothing can be timed here: {reason}." if reason else "This version of kmint does not award crowns yet."
        self.query_one("#empty", Static).update(f"No crowns.\n\n{WHAT}\n\n{there}")
