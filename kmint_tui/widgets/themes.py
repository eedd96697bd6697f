"""The themes and the styles of marks and outcomes. Screens name roles; only this file names
colours.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.app import App
from textual.theme import Theme

THEMES = (
    Theme(
        name="kmint-dark",
        primary="#4cc9a4",
        secondary="#6fb1e8",
        accent="#e5b567",
        foreground="#d8dee6",
        background="#0f1318",
        surface="#161c23",
        panel="#1e2630",
        success="#4fd18b",
        warning="#e5b567",
        error="#f2777a",
        dark=True,
    ),
    Theme(
        name="kmint-light",
        primary="#0b7a5c",
        secondary="#1f5f99",
        accent="#8a5a00",
        foreground="#1d252c",
        background="#fbfaf7",
        surface="#f1efe9",
        panel="#e4e1d8",
        success="#1a7f37",
        warning="#8a5a00",
        error="#b3261e",
        dark=False,
    ),
    Theme(
        name="kmint-contrast",
        primary="#ffff00",
        secondary="#00ffff",
        accent="#ffff00",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#202020",
        success="#00ff00",
        warning="#ffff00",
        error="#ff6060",
        dark=True,
    ),
)

ROLES = {
    "win": "success",
    "correct": "success",
    "pass": "success",
    "done": "success",
    "here": "success",
    "fits": "success",
    "tie": "secondary",
    "busy": "secondary",
    "running": "secondary",
    "unsure": "warning",
    "loss": "warning",
    "warn": "warning",
    "stopped": "warning",
    "rejected": "error",
    "error": "error",
    "fail": "error",
    "failed": "error",
    "refused": "error",
}

_BY_NAME = {theme.name: theme for theme in THEMES}


def theme_of(app: App[Any]) -> Theme:
    """The theme in use."""
    return _BY_NAME.get(app.theme, THEMES[0])


class Styled(Text):
    """A text that knows the role it is coloured by, so that it can be coloured anew when the theme
    changes.
    """

    role = ""


def styled(app: App[Any], text: str, role: str) -> Text:
    """`text` in the colour of a role (an outcome, a mark, a state); roles without a colour are dim."""
    name = ROLES.get(role)
    made = Styled(
        text,
        style=getattr(theme_of(app), name) if name else "dim",
        no_wrap=True,
        overflow="ellipsis",
    )
    made.role = role
    return made
