"""The keys and the pictures of the application, read from its screens and from `docs/screenshots`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import format_key

from kmint_tui.app import KmintApp
from kmint_tui.screens.base import KmintScreen
from kmint_tui.widgets.screen_bars import MODE_TITLES

SCREENSHOTS = Path(__file__).resolve().parents[1] / "screenshots"
CAPTIONS = {
    "mint-writing": "Drafts being written and judged",
    "mint": "The ranked drafts of a session",
    "draft": "A draft that passed, with every check",
    "times": "The times of a draft and its baselines",
    "crowns": "A crown after a won challenge",
    "grid": "A kernel at every shape and dtype",
    "history": "The history",
    "models": "The models and their store",
    "help": "The keys of a screen",
}
"""Every picture that `bench/screenshots.py` takes, in the order of the page."""


def keys() -> str:
    """A table: the screen, the key, and its action."""
    rows = _rows("everywhere", [*_own(KmintApp), *_own(KmintScreen)])
    for mode, title in MODE_TITLES:
        made = KmintApp.MODES[mode]
        assert callable(made)
        screen = type(made())
        rows += _rows(
            title,
            [one for owner in screen.__mro__ if owner is not KmintScreen for one in _own(owner)],
        )
    return "\n".join(("| screen | key | does |", "|---|---|---|", *rows)) + "\n"


def pictures() -> str:
    """The pictures that there are. Raises KeyError for one without a caption."""
    names = sorted((path.stem for path in SCREENSHOTS.glob("*.svg")), key=list(CAPTIONS).index)
    return "\n".join(f"![{CAPTIONS[name]}](screenshots/{name}.svg)" for name in names) + "\n"


def _rows(title: str, bindings: list[Binding]) -> list[str]:
    return [f"| {title} | `{_shown(one)}` | {one.tooltip} |" for one in bindings]


def _own(owner: type) -> Iterator[Binding]:
    """The bindings that this class itself adds."""
    if owner.__module__.startswith("kmint_tui") and issubclass(owner, DOMNode):
        found = vars(owner).get("BINDINGS", ())
        yield from (one for one in found if isinstance(one, Binding) and one.tooltip)


def _shown(binding: Binding) -> str:
    return binding.key_display or " ".join(format_key(key) for key in binding.key.split(","))
