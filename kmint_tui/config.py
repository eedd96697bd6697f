"""The user's settings: one TOML file, with the type and the origin of every value.

An unknown key or a wrong type is an error that names the nearest valid key. Each field's metadata
holds its help text, which `kmint config show` prints.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kmint_tui.documents import BadDocument, read_toml
from kmint_tui.errors import ConfigError

_BUILT_IN = "built in"
_OF_THE_APPLICATION = ("keys", "theme", "density", "tui")
_HELP = "correct it there, or take the line out for the built-in value"


def _setting(
    default: Any,
    text: str,
    kind: type | tuple[type, ...],
    *,
    low: float | None = None,
    high: float | None = None,
    above: bool = False,
) -> Any:
    """`above`: `low` itself is not allowed."""
    return field(
        default=default,
        metadata={"help": text, "kind": kind, "low": low, "high": high, "above": above},
    )


@dataclass(frozen=True)
class Config:
    """Settings of `config.toml`, by section; None means that kmint chooses and gives the reason."""

    mint_model: str | None = _setting(None, "model id or path", str)
    mint_drafts: int = _setting(8, "drafts a session", int, low=1, high=64)
    mint_temperature: float | None = _setting(
        None, "sampling temperature; the model's own when unset", (int, float), low=0.0, high=5.0
    )
    mint_top_p: float | None = _setting(
        None,
        "nucleus sampling; the model's own when unset",
        (int, float),
        low=0.0,
        high=1.0,
        above=True,
    )
    mint_max_tokens: int | None = _setting(
        None, "longest draft in tokens; the model's own when unset", int, low=16, high=32768
    )
    mint_target: str | None = _setting(
        None, "GPU to compile for when none is present, for example sm_90", str
    )
    network_offline: bool = _setting(False, "never open a network connection", bool)
    sandbox_require: bool = _setting(
        False, "run kernels only where every layer of the sandbox is there", bool
    )
    sandbox_allow_weak: bool = _setting(
        False, "run kernels also where nothing keeps them from this user's files", bool
    )


@dataclass(frozen=True)
class Loaded:
    """Settings with the origin of each value, by dotted name."""

    config: Config
    origins: dict[str, str]


def switched_on(variable: str) -> bool:
    """True where an environment variable is set to anything but a word for no."""
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off")


def dotted(name: str) -> str:
    """The name of a field as it is written in the file: `mint_top_p` is `mint.top_p`."""
    return name.replace("_", ".", 1)


def load(path: Path) -> Loaded:
    """The settings of `path`; the built-in ones when there is no such file. Raises ConfigError."""
    known = {dotted(item.name): item for item in fields(Config)}
    origins = dict.fromkeys(known, _BUILT_IN)
    try:
        document = read_toml(path)
    except (FileNotFoundError, NotADirectoryError):
        return Loaded(Config(), origins)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except BadDocument as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    values: dict[str, Any] = {}
    for name, value in _flatten(document):
        item = known.get(name)
        if item is None:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {near[0]}?" if near else "`kmint config show` lists them"
            if name.split(".")[0] in _OF_THE_APPLICATION:
                fix = (
                    f"how the application looks and its keys stand in {path.with_name('tui.toml')}"
                )
            raise ConfigError(f"{path}: unknown setting {name!r}", fix=fix)
        values[item.name] = _checked(path, name, value, item.metadata)
        origins[name] = str(path)
    return Loaded(Config(**values), origins)


def _flatten(document: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for section, content in document.items():
        found += (
            [(f"{section}.{key}", value) for key, value in content.items()]
            if isinstance(content, dict)
            else [(section, content)]
        )
    return found


def _checked(path: Path, name: str, value: Any, rule: Any) -> Any:
    kind = rule["kind"]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = kind.__name__ if isinstance(kind, type) else "number"
        raise ConfigError(
            f"{path}: {name} must be of type {wanted}, not {type(value).__name__}", fix=_HELP
        )
    low, high, above = rule["low"], rule["high"], rule["above"]
    if low is not None and not (low < value <= high if above else low <= value <= high):
        bounds = (
            f"not above {low:g} and at most {high:g}" if above else f"outside {low:g} to {high:g}"
        )
        raise ConfigError(f"{path}: {name} = {value} is {bounds}", fix=_HELP)
    return value
