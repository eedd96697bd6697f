"""Crowns."""

from kmint_tui.screens.base import KmintScreen


class CrownsScreen(KmintScreen):
    mode = "crowns"
