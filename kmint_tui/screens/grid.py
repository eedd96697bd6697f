"""Grid."""

from kmint_tui.screens.base import KmintScreen


class GridScreen(KmintScreen):
    mode = "grid"
