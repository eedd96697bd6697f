"""Whether to colour, and a handful of ANSI styles.

`--color` goes before `NO_COLOR`, that before `TERM=dumb`, and that before the kind of stream.
Colour never changes the text itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Literal

ColourChoice = Literal["auto", "always", "never"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

VERDICT_STYLES = {
    "win": "green",
    "tie": "cyan",
    "unsure": "yellow",
    "loss": "yellow",
    "correct": "green",
    "rejected": "red",
    "error": "red",
    "pass": "green",
    "fail": "red",
    "skipped": "dim",
    "no": "dim",
}


def colour_wanted(choice: ColourChoice, stream: IO[str], environment: Mapping[str, str]) -> bool:
    """True when text written to `stream` should carry colour."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, *, enabled: bool) -> str:
    """`text` in one of the named styles, or unchanged."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if enabled and code and text else text
