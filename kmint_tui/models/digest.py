"""The sha256 of a model file, computed once per (path, size, modification time, inode) and remembered in the cache.

The memory of it only saves time: where it cannot be read or written the digest is computed again. NAME.sha256 beside a file
of the store is another thing: the digest it had when it came in, so that a later change of the file is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import StorageError

RECORD = ".sha256"
_CACHE_NAME = "model-digests.json"


def sha256(path: Path, *, remember: bool = True) -> str:
    """The file's sha256 in hexadecimal; nothing is written unless `remember`. Raises OSError when the file cannot be read."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
    known = _remembered()
    if key not in known:
        with path.open("rb") as file:
            known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        if remember:
            _remember(known)
    return known[key]


def record(path: Path, digest: str) -> None:
    """Write down the digest with which a file came into the store, in the form that `sha256sum --check` reads. Raises OSError."""
    path.with_name(path.name + RECORD).write_text(f"{digest}  {path.name}\n", encoding="utf-8")


def recorded(path: Path) -> str | None:
    """The digest with which a file came into the store; None where that was not written down."""
    try:
        word = path.with_name(path.name + RECORD).read_text(encoding="utf-8").split(" ", 1)[0]
    except (OSError, UnicodeDecodeError):
        return None
    return word if len(word) == 64 else None


def _remembered() -> dict[str, str]:
    try:
        content = json.loads((paths.cache_dir() / _CACHE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str) and len(value) == 64}


def _remember(known: dict[str, str]) -> None:
    try:
        target = paths.private_dir(paths.cache_dir()) / _CACHE_NAME
        partial = target.with_suffix(f".{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(known, indent=1), encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, StorageError):
        return
