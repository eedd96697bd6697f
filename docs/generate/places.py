"""Tables of exit codes, places and settings, read from the code that defines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from kmint_tui import paths
from kmint_tui.config import Config, dotted
from kmint_tui.core.exit_codes import ExitCode

_PARTS = {
    "config": "~/.config/kmint",
    "data": "~/.local/share/kmint",
    "cache": "~/.cache/kmint",
    "state": "~/.local/state/kmint",
}
"""Where platformdirs puts each kind on Linux, without XDG variables."""


def exit_codes() -> str:
    """Every exit code and its meaning."""
    return _table(("code", "meaning"), [(str(code.value), code.meaning) for code in ExitCode])


def places() -> str:
    """Every place that `kmint path` prints: its name, what it holds and where it is by default."""
    rows = [
        (name, _first_line(place.__doc__), f"`{_default(name)}`")
        for name, place in paths.PLACES.items()
    ]
    return _table(("name", "holds", "where"), rows)


def settings() -> str:
    """Every setting of config.toml with its meaning and its built-in value."""
    rows = []
    for item in fields(Config):
        default = "-" if item.default is None else str(item.default).lower()
        rows.append((f"`{dotted(item.name)}`", item.metadata["help"], default))
    return _table(("setting", "meaning", "built in"), rows)


def _default(name: str) -> str:
    """The place by its path below the folder of its kind, with KMINT_HOME standing for the root
    of all kinds."""
    from unittest import mock

    with mock.patch.dict("os.environ", {"KMINT_HOME": "/root-of-all"}):
        below = paths.PLACES[name]().relative_to("/root-of-all")
    kind, *rest = below.parts
    return "/".join((_PARTS[kind], *rest))


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0].rstrip(".")


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [
        " | ".join(headers),
        " | ".join("---" for _ in headers),
        *(" | ".join(row) for row in rows),
    ]
    return "".join(f"| {line} |\n" for line in lines)
