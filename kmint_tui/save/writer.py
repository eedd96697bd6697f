"""Writes a saved kernel. Each file appears whole or not at all, and an edited file stays unless
forced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from convert import files
from kmint_tui.documents import MAX_BYTES, BadDocument, parse_json, read_bytes
from kmint_tui.errors import UsageError, storage_error
from kmint_tui.save.receipt import sha256


def write(folder: Path, texts: Mapping[str, str], receipt: str, *, force: bool) -> tuple[Path, ...]:
    """Write `texts` by path into `folder`; `receipt` lists their digests and is written last.

    Raises UsageError for a file that was edited since kmint wrote it (unless `force`), StorageError
    if kmint cannot write.
    """
    known = _known(folder, receipt)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in texts:
            _check_stays_below(folder, name)
        if not force:
            for name, text in texts.items():
                _check_unedited(folder / name, text, known)
        for parent in {(folder / name).parent for name in texts}:
            parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(texts, key=lambda name: name == receipt)
        for name in ordered:
            files.write_text(folder / name, texts[name])
        return tuple(folder / name for name in ordered)
    except OSError as error:
        raise storage_error(Path(error.filename or folder), error) from error


def _known(folder: Path, receipt: str) -> frozenset[tuple[str, str]]:
    """File names and digests in an earlier receipt, with the receipt itself if it can be read."""
    try:
        text = read_bytes(folder / receipt, most_bytes=MAX_BYTES).decode("utf-8")
        document = parse_json(text)
        listed = {**document["files"], **document.get("package", {})}
        itself = (PurePosixPath(receipt).name, sha256(text))
        return frozenset(
            {itself, *((PurePosixPath(name).name, str(digest)) for name, digest in listed.items())}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def _check_stays_below(folder: Path, name: str) -> None:
    """Raises UsageError if a link in the project leads out of the folder."""
    place = folder
    for part in PurePosixPath(name).parts[:-1]:
        place /= part
        if place.is_symlink():
            raise UsageError(
                f"{place} is a link, and kmint writes through none inside the folder",
                fix="--to saves in another folder",
                title="not written",
            )


def _check_unedited(path: Path, text: str, known: Collection[tuple[str, str]]) -> None:
    if not path.exists() or _is_product(path):
        return
    try:
        found = hashlib.sha256(read_bytes(path, most_bytes=MAX_BYTES)).hexdigest()
    except BadDocument:
        found = "of no file that kmint writes"
    if found != sha256(text) and (path.name, found) not in known:
        raise UsageError(
            f"{path} was not written by kmint, or was edited since",
            fix="--force overwrites it, --to saves into another folder",
            title="not overwritten",
        )


def _is_product(path: Path) -> bool:
    """True for the list of digests in a built package, which is made from the files next to it."""
    return path.name == "metadata.json" and path.parent.parent.name == "build"
