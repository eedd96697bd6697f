"""An incomplete download: NAME.part, and NAME.part.json with its origin.

The file gets its own name only when size and sha256 are right. One process at a time works on it;
others wait. Each start of kmint removes parts without a record, and parts older than
`KEPT_SECONDS`. Opens no connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from convert import files
from kmint_tui.documents import read_json
from kmint_tui.errors import ModelError, StorageError, TimedOut, storage_error
from kmint_tui.models import digest
from kmint_tui.models.remote import ORIGIN, Remote, record_origin
from kmint_tui.unfinished_places import noted

CHUNK = 1 << 20
"""Bytes that one read of a part takes."""

MOST_RESTARTS = 3
"""Largest number of restarts of one download."""

SPARE_BYTES = 64 << 20
"""Bytes that must stay free on the disk."""

KEPT_SECONDS = 30 * 24 * 3600.0
"""Seconds after which an unused part is removed."""

_PART, _NOTE = ".part", ".part.json"


class Part:
    """NAME.part, its record, and the running digest of its content."""

    def __init__(self, remote: Remote, target: Path) -> None:
        self.remote, self.target = remote, target
        self.path = target.with_name(target.name + _PART)
        self.note = target.with_name(target.name + _NOTE)
        self.etag: str | None = None
        self.restarts = -1
        with noted(target.parent):
            if self._belongs():
                self.restarts = 0
            else:
                self.restart()
        self.digest = hashlib.sha256()
        self.size = 0
        with self.path.open("rb") as file:
            while block := file.read(CHUNK):
                self.digest.update(block)
                self.size += len(block)

    def _belongs(self) -> bool:
        try:
            note = read_json(self.note)
            self.etag = note["etag"]
            return (
                bool(note["remote"] == asdict(self.remote))
                and self.path.is_file()
                and not self.path.is_symlink()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def restart(self) -> None:
        """Start again with an empty part. Raises TimedOut after too many restarts."""
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            self.remove()
            raise TimedOut(
                f"{self.remote.name}: the server's file differs from the announced one, "
                "or keeps changing",
                fix="try again later",
            )
        # A new file: kmint must not write through a link that another user put here.
        self.path.unlink(missing_ok=True)
        self.path.open("xb").close()
        self.digest = hashlib.sha256()
        self.size = 0
        self.begin(None)

    def begin(self, etag: str | None) -> None:
        """Record the origin of the bytes; `etag` is the server's name of its version."""
        self.etag = etag
        files.write_text(self.note, json.dumps({"remote": asdict(self.remote), "etag": etag}))

    def remove(self) -> None:
        """Remove the part and its record."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give the part its final name if size and digest are right; otherwise remove it.

        Raises ModelError.
        """
        if self.remote.sha256 is not None and self.digest.hexdigest() != self.remote.sha256:
            self.remove()
            raise ModelError(
                f"{self.remote.name} arrived damaged: its sha256 is not the published one",
                fix="the part was removed; pull again",
            )
        files.sync(self.path)
        digest.record(self.target, self.digest.hexdigest())
        record_origin(self.target, self.remote)
        files.move(self.path, self.target)
        digest.remember(self.target, self.digest.hexdigest())
        self.note.unlink(missing_ok=True)


def unfinished(folder: Path) -> tuple[Path, ...]:
    """The parts in `folder`, found by the lock next to each. Raises OSError."""
    return tuple(sorted(part for part in folder.glob("*" + _PART) if _lock_of(part).exists()))


def sweep(folder: Path) -> tuple[Path, ...]:
    """Remove the parts in `folder` that no download will continue; returns the others.

    Raises OSError.
    """
    for note in folder.glob("*" + _NOTE):
        part = note.with_name(note.name.removesuffix(".json"))
        if not part.exists() and _lock_of(part).exists():
            _drop(part)
    return tuple(part for part in unfinished(folder) if _may_continue(part) or not _drop(part))


def _may_continue(part: Path) -> bool:
    return (
        part.with_name(part.name + ".json").is_file()
        and time.time() - part.stat().st_mtime < KEPT_SECONDS
    )


def _drop(part: Path) -> bool:
    """Remove a part and its record; without a finished file also the other records and the lock.

    Returns False while another process works on it.
    """
    lock = _lock_of(part)
    try:
        with locked(lock, wait=False):
            part.unlink(missing_ok=True)
            part.with_name(part.name + ".json").unlink(missing_ok=True)
            target = part.with_name(part.name.removesuffix(_PART))
            if not target.exists():
                for path in (*notes_of(target), lock):
                    path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    return True


def notes_of(target: Path) -> tuple[Path, ...]:
    """The records of a fetched file: its digest and its origin."""
    return tuple(target.with_name(target.name + ending) for ending in (digest.RECORD, ORIGIN))


def _lock_of(part: Path) -> Path:
    return part.with_name(f".{part.name.removesuffix(_PART)}.lock")


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock. Waits for another holder, or raises BlockingIOError."""
    while True:
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        ) as file:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _lies_at(file.fileno(), path):
                yield
                return


def _lies_at(descriptor: int, path: Path) -> bool:
    """True while the opened file still has its name; the previous holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def check_space(folder: Path, missing: int) -> None:
    """Raise StorageError unless the file system has room for `missing` bytes more."""
    free = shutil.disk_usage(folder).free
    if free < missing + SPARE_BYTES:
        need = (
            f"{(missing + SPARE_BYTES) / 1e9:.2f} GB are needed in {folder}, {free / 1e9:.2f} "
            "GB are free"
        )
        raise StorageError(
            need, fix="free some space, or set KMINT_MODELS_DIR to a place with room"
        )


def take_out(name: str, files: Sequence[Path], locks: Sequence[Path]) -> None:
    """Delete `files` (links only as links) and then the `locks` of downloads.

    Raises StorageError, before any deletion while `name` is being fetched.
    """
    path = None
    try:
        with contextlib.ExitStack() as held:
            for path in locks:
                held.enter_context(locked(path, wait=False))
            for path in (*files, *locks):
                path.unlink(missing_ok=True)
    except BlockingIOError as error:
        raise StorageError(
            f"{name} is being fetched by another process",
            fix="wait for it or stop it, then remove the files again",
        ) from error
    except OSError as error:
        raise storage_error(path or Path(name), error) from error
