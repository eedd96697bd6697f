"""The looks and the keys of the interface: `tui.toml` in the settings folder.

    theme = "kmint-light"
    density = "compact"
    [keys]
    "mint.start" = "f6"

The user writes this file, and kmint only reads it. kmint keeps the present theme and density in
`tui-state.json`.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convert import files
from kmint_tui import paths
from kmint_tui.documents import BadDocument, read_json, read_toml
from kmint_tui.errors import ConfigError, KmintError

THEMES = ("kmint-dark", "kmint-light", "kmint-contrast")
DENSITIES = ("comfortable", "compact")


@dataclass(frozen=True)
class Preferences:
    """Theme, density and keys by binding id."""

    theme: str = THEMES[0]
    density: str = DENSITIES[0]
    keys: dict[str, str] = field(default_factory=dict)


def file() -> Path:
    """The settings file of the interface."""
    return paths.config_dir() / "tui.toml"


def load() -> Preferences:
    """The preferences; built-in ones where there is no file. Raises ConfigError."""
    chosen = replace(Preferences(), **_remembered())
    try:
        document = read_toml(file())
    except (FileNotFoundError, NotADirectoryError):
        return chosen
    except (OSError, BadDocument) as error:
        raise ConfigError(f"{file()} cannot be read: {error}") from error
    keys = document.pop("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys.values()):
        raise ConfigError(f"{file()}: [keys] holds texts by binding id")
    for name, value in document.items():
        allowed = {"theme": THEMES, "density": DENSITIES}.get(name)
        if allowed is None:
            near = difflib.get_close_matches(name, ["theme", "density", "keys"], n=1)
            raise ConfigError(
                f"{file()}: unknown setting {name!r}",
                fix=f"did you mean {near[0]}?" if near else "",
            )
        if value not in allowed:
            raise ConfigError(f"{file()}: {name} must be one of {', '.join(allowed)}")
    return replace(chosen, **document, keys=keys)


def remember(theme: str, density: str) -> None:
    """Keep the interface's theme and density for the next start. A failed write loses only these
    two.
    """
    try:
        target = paths.private_dir(paths.state_dir()) / "tui-state.json"
        files.write_text(target, json.dumps({"theme": theme, "density": density}))
    except (OSError, KmintError):
        return


def _remembered() -> dict[str, Any]:
    try:
        content = read_json(paths.state_dir() / "tui-state.json")
    except (OSError, BadDocument):
        return {}
    allowed = {"theme": THEMES, "density": DENSITIES}
    return {
        name: content[name]
        for name, known in allowed.items()
        if isinstance(content, dict) and content.get(name) in known
    }
