"""A user's own model: an entry in the user's file for a GGUF that models.toml does not list."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from convert import files
from kmint_tui.errors import UsageError, storage_error
from kmint_tui.models import registry
from kmint_tui.models.check import ModelFile
from kmint_tui.models.registry import Dialect, ModelEntry

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Below the embedded smith's rank, so that only a request by name chooses the model.
RANK = 5
TEMPERATURE, TOP_P, MAX_TOKENS = 0.7, 0.95, 1024
_WRITTEN = (
    "id",
    "title",
    "kind",
    "rank",
    "licence",
    "context",
    "dialect",
    "temperature",
    "top_p",
    "max_tokens",
    "note",
)


@dataclass(frozen=True)
class Settings:
    """The prompt and sampling settings of the model; None for the defaults."""

    dialect: Dialect | None = None
    context: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None

    @property
    def given(self) -> bool:
        """True when any setting is given."""
        return any(value is not None for value in vars(self).values())


def new_entry(name: str, file: ModelFile, settings: Settings) -> ModelEntry:
    """An entry `name` for `file`. Raises UsageError for an invalid name or context."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid model name",
            fix="use lower-case letters, digits, dots and hyphens",
        )
    if settings.context is not None and settings.context > file.context:
        raise UsageError(
            f"the file was made for a context of {file.context} tokens",
            fix=f"give --context {file.context} or less",
        )
    return ModelEntry(
        id=name,
        title=file.name[:60] or name,
        kind="made",
        rank=RANK,
        licence="unknown",
        context=settings.context or file.context,
        dialect=settings.dialect or "card",
        temperature=TEMPERATURE if settings.temperature is None else settings.temperature,
        top_p=TOP_P if settings.top_p is None else settings.top_p,
        max_tokens=settings.max_tokens or MAX_TOKENS,
        note="Imported by hand.",
    )


def write_entry(user_file: Path, entry: ModelEntry) -> None:
    """Add an entry to the user's file and keep the rest. Raises StorageError."""
    # JSON writes these texts and numbers as TOML does.
    table = "[[model]]\n" + "".join(
        f"{key} = {json.dumps(getattr(entry, key))}\n" for key in _WRITTEN
    )
    try:
        before = (
            user_file.read_text(encoding="utf-8")
            if user_file.exists()
            else f"schema = {registry.SCHEMA}\n"
        )
        user_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(user_file, f"{before.rstrip()}\n\n{table}")
    except OSError as error:
        raise storage_error(user_file, error) from error
