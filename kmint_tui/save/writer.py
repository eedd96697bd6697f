"""Writing a saved kernel: each file appears whole or not at all, and an edited file is never overwritten unasked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from kmint_tui.errors import UsageError, storage_error
from kmint_tui.save.receipt import sha256


def write(folder: Path, texts: Mapping[str, str], receipt: str, *, force: bool) -> tuple[Path, ...]:
    """Write `texts` by path into `folder`; `receipt` is the one that lists their digests and goes last.

    Raises UsageError when a file there was edited since kmint wrote it (unless `force`), StorageError when it cannot write.
    """
    known = _known(folder, receipt)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not force:
            for name, text in texts.items():
                _check_unedited(folder / name, text, known)
        for parent in {(folder / name).parent for name in texts}:
            parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(texts, key=lambda name: name == receipt)
        return tuple(_write(folder / name, texts[name]) for name in ordered)
    except OSError as error:
        raise storage_error(Path(error.filename or folder), error) from error


def _known(folder: Path, receipt: str) -> frozenset[tuple[str, str]]:
    """File names and digests that an earlier receipt vouches for, its own among them if it can be read."""
    try:
        text = (folder / receipt).read_text(encoding="utf-8")
        document = json.loads(text)
        listed = {**document["files"], **document.get("package", {})}
        itself = (PurePosixPath(receipt).name, sha256(text))
        return frozenset({itself, *((PurePosixPath(name).name, str(digest)) for name, digest in listed.items())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def _check_unedited(path: Path, text: str, known: Collection[tuple[str, str]]) -> None:
    if not path.exists() or _is_product(path):
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256(text) and (path.name, found) not in known:
        raise UsageError(
            f"{path} was not written by kmint, or was edited since",
            fix="--force overwrites it, --to saves elsewhere",
            title="not overwritten",
        )


def _is_product(path: Path) -> bool:
    """True for the list of digests in a built package, which is made of the files beside it."""
    return path.name == "metadata.json" and path.parent.parent.name == "build"


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
