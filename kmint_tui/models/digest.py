"""The sha256 of a model file, cached by path, size, modification time and inode.

The cache only saves time: without it the digest is computed again. NAME.sha256 next to a file of
the store records the digest at its import, so that a later change is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.documents import read_json
from kmint_tui.errors import ModelError, StorageError

RECORD = ".sha256"
CHANGED = "if you did not intend this, remove it with `kmint models rm` and pull or import it again"
_CACHE_NAME = "model-digests.json"


def sha256(path: Path, *, keep: bool = True) -> str:
    """The file's sha256 in hexadecimal; nothing is written unless `keep`.

    Raises OSError when the file cannot be read.
    """
    key, known = _key(path), _remembered()
    if key in known:
        return known[key]
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if keep:
        remember(path, found)
    return found


def remember(path: Path, digest: str) -> None:
    """Cache the digest of a file as it is now. Raises OSError for a missing file."""
    known = _remembered()
    known[_key(path)] = digest
    with contextlib.suppress(OSError, StorageError):
        files.write_text(
            paths.private_dir(paths.cache_dir()) / _CACHE_NAME, json.dumps(known, indent=1)
        )


def verified(path: Path, pinned: str | None) -> str:
    """The file's sha256, equal to the one in models.toml and to the one at its import.

    Raises ModelError for another digest, OSError when the file cannot be read.
    """
    actual, entered = sha256(path), recorded(path)
    if entered not in (None, actual):
        raise ModelError(
            f"{path} has changed since it came into the store: its sha256 is {actual}, it "
            f"was {entered}",
            fix=CHANGED,
        )
    if pinned not in (None, actual):
        raise ModelError(
            f"{path} is not the file that models.toml names: its sha256 is {actual}",
            fix="pull or import it again",
        )
    return actual


def _key(path: Path) -> str:
    stat = path.stat()
    return f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"


def record(path: Path, digest: str) -> None:
    """Write the digest of a file at its import, in the form of `sha256sum --check`.

    Raises OSError.
    """
    files.write_text(path.with_name(path.name + RECORD), f"{digest}  {path.name}\n")


def recorded(path: Path) -> str | None:
    """The digest of a file at its import; None without a record."""
    try:
        word = path.with_name(path.name + RECORD).read_text(encoding="utf-8").split(" ", 1)[0]
    except (OSError, UnicodeDecodeError):
        return None
    return word if len(word) == 64 else None


def _remembered() -> dict[str, str]:
    try:
        content = read_json(paths.cache_dir() / _CACHE_NAME)
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        key: value for key, value in content.items() if isinstance(value, str) and len(value) == 64
    }
