"""The user's settings: one TOML file, every value typed, checked and traced to where it came from.

An unknown key or a wrong type is an error that names the nearest valid key; nothing is ignored in silence. Each field's
metadata holds its help text, which `kmint config show` prints.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kmint_tui.errors import ConfigError

_BUILT_IN = "built in"
_OF_THE_APPLICATION = ("keys", "theme", "density", "tui")
_HELP = "correct it there, or take the line out for the built-in value"


def _setting(
    default: Any, text: str, kind: type | tuple[type, ...], *, low: float | None = None, high: float | None = None, above: bool = False
) -> Any:
    """`above`: `low` itself is not allowed."""
    return field(default=default, metadata={"help": text, "kind": kind, "low": low, "high": high, "above": above})


@dataclass(frozen=True)
class Config:
    """Settings of `config.toml`, section by section; None means that kmint chooses and says why."""

    mint_model: str | None = _setting(None, "model id or path", str)
    mint_drafts: int = _setting(8, "drafts a session", int, low=1, high=64)
    mint_temperature: float | None = _setting(None, "sampling temperature; the model's own when unset", (int, float), low=0.0, high=5.0)
    mint_top_p: float | None = _setting(None, "nucleus sampling; the model's own when unset", (int, float), low=0.0, high=1.0, above=True)
    mint_max_tokens: int | None = _setting(None, "longest draft in tokens; the model's own when unset", int, low=16, high=32768)
    mint_target: str | None = _setting(None, "GPU to compile for when none is present, for example sm_90", str)
    network_offline: bool = _setting(False, "never open a network connection", bool)


@dataclass(frozen=True)
class Loaded:
    """Settings with the origin of each value, by dotted name."""

    config: Config
    origins: dict[str, str]


def dotted(name: str) -> str:
    """The name of a field as it is written in the file: `mint_top_p` is `mint.top_p`."""
    return name.replace("_", ".", 1)


def load(path: Path) -> Loaded:
    """The settings of `path`; the built-in ones when there is no such file. Raises ConfigError."""
    known = {dotted(item.name): item for item in fields(Config)}
    origins = dict.fromkeys(known, _BUILT_IN)
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Loaded(Config(), origins)
    except (OSError, UnicodeDecodeError) as error:
        why = f"not UTF-8 text (byte {error.start})" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise ConfigError(f"{path} cannot be read: {why}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    values: dict[str, Any] = {}
    for name, value in _flatten(document):
        item = known.get(name)
        if item is None:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {near[0]}?" if near else "`kmint config show` lists them"
            if name.split(".")[0] in _OF_THE_APPLICATION:
                fix = f"how the application looks and its keys stand in {path.with_name('tui.toml')}"
            raise ConfigError(f"{path}: unknown setting {name!r}", fix=fix)
        values[item.name] = _checked(path, name, value, item.metadata)
        origins[name] = str(path)
    return Loaded(Config(**values), origins)


def _flatten(document: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for section, content in document.items():
        found += [(f"{section}.{key}", value) for key, value in content.items()] if isinstance(content, dict) else [(section, content)]
    return found


def _checked(path: Path, name: str, value: Any, rule: Any) -> Any:
    kind = rule["kind"]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = kind.__name__ if isinstance(kind, type) else "number"
        raise ConfigError(f"{path}: {name} must be of type {wanted}, not {type(value).__name__}", fix=_HELP)
    low, high, above = rule["low"], rule["high"], rule["above"]
    if low is not None and not (low < value <= high if above else low <= value <= high):
        bounds = f"not above {low:g} and at most {high:g}" if above else f"outside {low:g} to {high:g}"
        raise ConfigError(f"{path}: {name} = {value} is {bounds}", fix=_HELP)
    return value
