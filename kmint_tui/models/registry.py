"""The facts of each smith: the packaged `models.toml`, merged with the user's own file by id.

This module reads no model files; `store.py` and `check.py` do. Every value remembers the file that
it came from.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from convert.names import is_commit, is_sha256
from kmint_tui.documents import MAX_TOML_BYTES, BadDocument, parse_toml, read_bytes
from kmint_tui.errors import ConfigError, ModelError

SCHEMA = 1
PACKAGED = "kmint's own models.toml"

Kind = Literal["package", "hub", "made"]
Dialect = Literal["card", "trained", "graph", "request"]
Feedback = Literal["full", "brief"]


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One smith. Counts are those of its GGUF header, None where the registry lacks them."""

    id: str
    title: str
    kind: Kind
    rank: int
    licence: str
    context: int
    dialect: Dialect
    temperature: float
    top_p: float
    max_tokens: int
    repo: str | None = None
    revision: str | None = None
    quants: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    parameters: int | None = None
    layers: int | None = None
    kv_layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    runtime: str | None = None
    card: str | None = None
    feedback: Feedback = "full"
    note: str = ""


@dataclass(frozen=True)
class Registry:
    """All known smiths, the preferred one first, and the file that each value came from."""

    entries: tuple[ModelEntry, ...]
    origins: Mapping[str, Mapping[str, str]]

    def find(self, model_id: str) -> ModelEntry | None:
        """The entry of that id, or None."""
        return next((entry for entry in self.entries if entry.id == model_id), None)

    def get(self, model_id: str) -> ModelEntry:
        """The entry of that id. Raises ModelError with the nearest ids."""
        entry = self.find(model_id)
        if entry is None:
            near = difflib.get_close_matches(model_id, [known.id for known in self.entries], n=2)
            fix = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "`kmint models ls` lists the known ones; a path to a .gguf file works too"
            )
            raise ModelError(f"no model is called {model_id!r}, and no such file exists", fix=fix)
        return entry


def load(user_file: Path) -> Registry:
    """The packaged registry, merged with `user_file` if it exists. Raises ConfigError."""
    layers = [(PACKAGED, _packaged_text())]
    if user_file.exists():
        try:
            text = read_bytes(user_file, most_bytes=MAX_TOML_BYTES).decode("utf-8")
            layers.append((str(user_file), text))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{user_file} cannot be read: {error}") from error
    merged: dict[str, dict[str, Any]] = {}
    origins: dict[str, dict[str, str]] = {}
    for origin, text in layers:
        for table in _tables(origin, text):
            values = _typed(origin, table)
            merged.setdefault(values["id"], {}).update(values)
            origins.setdefault(values["id"], {}).update(dict.fromkeys(values, origin))
    entries = [_entry(values, origins[model_id]) for model_id, values in merged.items()]
    return Registry(tuple(sorted(entries, key=lambda entry: -entry.rank)), origins)


def _packaged_text() -> str:
    packaged = resources.files("kmint_tui.models").joinpath("models.toml")
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # A source checkout keeps the file at its root, where readers expect it.
    return (Path(__file__).resolve().parents[2] / "models.toml").read_text(encoding="utf-8")


def _tables(origin: str, text: str) -> list[dict[str, Any]]:
    try:
        document = parse_toml(text)
    except BadDocument as error:
        raise ConfigError(f"{origin} is not TOML: {error}") from error
    if document.get("schema", SCHEMA) != SCHEMA:
        raise ConfigError(
            f"{origin}: schema {document['schema']} is not known; this kmint reads schema {SCHEMA}"
        )
    tables = document.get("model", [])
    if not isinstance(tables, list) or not all(
        isinstance(table, dict) and isinstance(table.get("id"), str) for table in tables
    ):
        raise ConfigError(f"{origin}: every model is a [[model]] table with an id")
    return tables


_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        (
            "id",
            "title",
            "kind",
            "licence",
            "dialect",
            "repo",
            "revision",
            "base",
            "runtime",
            "card",
            "feedback",
            "note",
        ),
        str,
    ),
    **dict.fromkeys(
        (
            "rank",
            "context",
            "max_tokens",
            "parameters",
            "layers",
            "kv_layers",
            "kv_heads",
            "head_dim",
        ),
        int,
    ),
    **dict.fromkeys(("temperature", "top_p"), (int, float)),
    "quants": list,
    "sha256": dict,
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "dialect": get_args(Dialect),
    "feedback": get_args(Feedback),
}


def _typed(origin: str, table: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            raise ConfigError(
                f"{origin}: model {table['id']}: unknown key {name!r}",
                fix=f"did you mean {near[0]}?" if near else "",
            )
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise ConfigError(
                f"{origin}: model {table['id']}: {name} has the wrong type ({type(value).__name__})"
            )
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ConfigError(
                f"{origin}: model {table['id']}: {name} must be one of {', '.join(_CHOICES[name])}"
            )
        values[name] = tuple(str(item) for item in value) if isinstance(value, list) else value
    _check_pins(origin, values)
    return values


def _check_pins(origin: str, values: Mapping[str, Any]) -> None:
    """Refuse a revision that can move, and an invalid digest."""
    revision, digests = values.get("revision"), values.get("sha256", {})
    if revision is not None and not is_commit(revision):
        why = (
            f"revision {revision!r} is not the 40 hexadecimal digits of a commit; a branch or a "
            "tag may move"
        )
        raise ConfigError(
            f"{origin}: model {values['id']}: {why}",
            fix="`kmint models url ID` shows the commit that a pull would take",
        )
    if not all(is_sha256(digest) for digest in digests.values()):
        raise ConfigError(f"{origin}: model {values['id']}: a sha256 is 64 hexadecimal digits")


def _entry(values: dict[str, Any], origins: Mapping[str, str]) -> ModelEntry:
    required = [
        item.name
        for item in fields(ModelEntry)
        if item.default is MISSING and item.default_factory is MISSING
    ]
    missing = [name for name in required if name not in values]
    if missing:
        raise ConfigError(f"{origins['id']}: model {values['id']} lacks {', '.join(missing)}")
    return ModelEntry(**values)
