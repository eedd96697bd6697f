"""Models."""

from kmint_tui.screens.base import KmintScreen


class ModelsScreen(KmintScreen):
    mode = "models"
