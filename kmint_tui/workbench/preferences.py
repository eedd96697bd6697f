"""How the interface should look and which keys it listens to: `tui.toml` in the settings folder.

    theme = "kmint-light"
    density = "compact"
    [keys]
    "mint.start" = "f6"

Written by people, read by kmint, and kept current by kmint for theme and density only through `tui-state.json`.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kmint_tui import paths
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
        document = tomllib.loads(file().read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return chosen
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file()} cannot be read: {error}") from error
    keys = document.pop("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys.values()):
        raise ConfigError(f"{file()}: [keys] holds texts by binding id")
    for name, value in document.items():
        allowed = {"theme": THEMES, "density": DENSITIES}.get(name)
        if allowed is None:
            near = difflib.get_close_matches(name, ["theme", "density", "keys"], n=1)
            raise ConfigError(f"{file()}: unknown setting {name!r}", fix=f"did you mean {near[0]}?" if near else "")
        if value not in allowed:
            raise ConfigError(f"{file()}: {name} must be one of {', '.join(allowed)}")
    return replace(chosen, **document, keys=keys)


def remember(theme: str, density: str) -> None:
    """Keep what was chosen in the interface for the next start; a disk that refuses costs nothing but the memory."""
    try:
        target = paths.private_dir(paths.state_dir()) / "tui-state.json"
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps({"theme": theme, "density": density}), encoding="utf-8")
        partial.replace(target)
    except (OSError, KmintError):
        return


def _remembered() -> dict[str, Any]:
    try:
        content = json.loads((paths.state_dir() / "tui-state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    allowed = {"theme": THEMES, "density": DENSITIES}
    return {name: content[name] for name, known in allowed.items() if isinstance(content, dict) and content.get(name) in known}
