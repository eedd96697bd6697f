"""History."""

from kmint_tui.screens.base import KmintScreen


class HistoryScreen(KmintScreen):
    mode = "history"
