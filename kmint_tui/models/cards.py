"""The model card of a smith, stored next to its weights; it holds the prompt of its training.

A card is README.md of the adapter's repository. The model's folder stores it under that name with
its sha256, and with repository and commit if it was fetched. A card without a readable prompt is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.errors import ModelError, storage_error
from kmint_tui.models import digest
from kmint_tui.models.registry import ModelEntry
from kmint_tui.models.remote import ORIGIN, recorded_origin
from kmint_tui.smith.card import LONGEST, CardPrompt, CardUnreadable, read_card

NAME = "README.md"


@dataclass(frozen=True)
class Card:
    """A model's card. `source` is its origin."""

    path: Path
    prompt: CardPrompt
    source: str


def stored_card(model_id: str) -> Card | None:
    """The card of a model in the store, None without one.

    Raises ModelError for a card that changed since it was stored, or that cannot be read.
    """
    path = _place(model_id)
    if not path.is_file():
        return None
    again = f"store it again with `kmint models prompt {model_id} --card FILE`"
    expected = digest.recorded(path)
    if expected is not None and digest.sha256(path, keep=False) != expected:
        raise ModelError(f"{path} was changed since it was stored (its sha256 differs)", fix=again)
    fetched = recorded_origin(path)
    source = f"{fetched.repo} at {fetched.revision[:12]}" if fetched else "a file given by hand"
    return Card(path, _read(path, again), source)


def path_of(model_id: str) -> Path | None:
    """The file of a model's card, None without one. Raises ModelError as `kept` does."""
    card = stored_card(model_id)
    return None if card is None else card.path


def keep(entry: ModelEntry, source: Path) -> Card:
    """Store the card in the file `source` for a model. Raises ModelError, StorageError."""
    _read(source, "give the README.md of the adapter's repository")
    path = _place(entry.id)
    try:
        text = source.read_bytes()
        paths.private_dir(path.parent)
        for note in _notes(path):
            note.unlink(missing_ok=True)
        with files.replacing(path) as file:
            file.write(text)
        digest.record(path, digest.sha256(path, keep=False))
    except OSError as error:
        raise storage_error(path, error) from error
    card = stored_card(entry.id)
    assert card is not None
    return card


def refuse_unreadable(entry: ModelEntry) -> None:
    """Remove a fetched card without a readable prompt. Raises ModelError with the reason."""
    path = _place(entry.id)
    try:
        _read(path, f"store a readable card with `kmint models prompt {entry.id} --card FILE`")
    except ModelError:
        for file in (path, *_notes(path)):
            file.unlink(missing_ok=True)
        raise


def stored_files(model_id: str) -> tuple[Path, ...]:
    """The card and the records next to it, as far as they exist."""
    path = _place(model_id)
    return tuple(file for file in (path, *_notes(path)) if file.is_file())


def _place(model_id: str) -> Path:
    return paths.models_dir() / model_id / NAME


def _notes(path: Path) -> tuple[Path, ...]:
    return (path.with_name(path.name + ".sha256"), path.with_name(path.name + ORIGIN))


def _read(path: Path, fix: str) -> CardPrompt:
    try:
        if path.stat().st_size > LONGEST:
            raise ModelError(f"{path} is too long for a card", fix=fix)
        return read_card(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text", fix=fix) from error
    except CardUnreadable as error:
        raise ModelError(f"{path}: {error.reason}", fix=fix) from error
