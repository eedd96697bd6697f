"""Doctor."""

from kmint_tui.screens.base import KmintScreen


class DoctorScreen(KmintScreen):
    mode = "doctor"
