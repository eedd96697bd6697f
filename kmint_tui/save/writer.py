"""Writing a saved kernel: each file appears whole or not at all, and an edited file is never overwritten unasked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from kmint_tui.errors import UsageError, storage_error
from kmint_tui.save.receipt import sha256


def write(folder: Path, texts: Mapping[str, str], receipt: str, *, force: bool) -> tuple[Path, ...]:
    """Write `texts` by name into `folder`; `receipt` is the one that lists their digests and goes last.

    Raises UsageError when a file there was edited since kmint wrote it (unless `force`), StorageError when it cannot write.
    """
    known = _known(folder / receipt)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not force:
            for name, text in texts.items():
                _check_unedited(folder / name, text, known)
        ordered = sorted(texts, key=lambda name: (name == receipt, name))
        return tuple(_write(folder / name, texts[name]) for name in ordered)
    except OSError as error:
        raise storage_error(Path(error.filename or folder), error) from error


def _known(receipt: Path) -> dict[str, str]:
    """The digests by which an earlier receipt knows its files; the receipt itself counts as unedited if it can be read."""
    try:
        text = receipt.read_text(encoding="utf-8")
        files = json.loads(text)["files"]
        return {**{str(name): str(digest) for name, digest in files.items()}, receipt.name: sha256(text)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _check_unedited(path: Path, text: str, known: Mapping[str, str]) -> None:
    if not path.exists():
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found not in (known.get(path.name), sha256(text)):
        raise UsageError(
            f"{path} was not written by kmint, or was edited since",
            fix="--force overwrites it, --to saves elsewhere",
            title="not overwritten",
        )


def _write(path: Path, text: str) -> Path:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
