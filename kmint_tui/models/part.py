"""A file that has not arrived whole: NAME.part, and NAME.part.json that says what it belongs to. Opens no connection.

The file gets its own name only when size and sha256 are right. One process at a time works on it; others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from kmint_tui.errors import ModelError, StorageError, TimedOut
from kmint_tui.models import digest
from kmint_tui.models.remote import Remote

CHUNK = 1 << 20
MOST_RESTARTS = 3
SPARE_BYTES = 64 << 20


class Part:
    """NAME.part, what it belongs to, and the running digest of what it holds."""

    def __init__(self, remote: Remote, target: Path) -> None:
        self.remote, self.target = remote, target
        self.path = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.etag: str | None = None
        self.restarts = -1
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
            note = json.loads(self.note.read_text(encoding="utf-8"))
            self.etag = note["etag"]
            return bool(note["remote"] == asdict(self.remote)) and self.path.is_file()
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def restart(self) -> None:
        """Begin anew with an empty part. Raises TimedOut when that has been done too often."""
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            self.remove()
            raise TimedOut(
                f"{self.remote.name}: the server's file is not the announced one, or changes all the time", fix="try again later"
            )
        self.path.write_bytes(b"")
        self.digest = hashlib.sha256()
        self.size = 0
        self.begin(None)

    def begin(self, etag: str | None) -> None:
        """Note what the bytes belong to; `etag` is the server's name for the version that it sends."""
        self.etag = etag
        self.note.write_text(json.dumps({"remote": asdict(self.remote), "etag": etag}), encoding="utf-8")

    def remove(self) -> None:
        """Drop the part and its note."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give the part its final name if size and digest are right; otherwise remove it. Raises ModelError."""
        if self.remote.sha256 is not None and self.digest.hexdigest() != self.remote.sha256:
            self.remove()
            raise ModelError(
                f"{self.remote.name} arrived damaged: its sha256 is not the published one", fix="the part was removed; pull again"
            )
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        digest.record(self.target, self.digest.hexdigest())
        self.path.replace(self.target)
        self.note.unlink(missing_ok=True)
        folder = os.open(self.target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock; waits for another process that has it, or raises BlockingIOError."""
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _lies_at(file.fileno(), path):
                yield
                return


def _lies_at(descriptor: int, path: Path) -> bool:
    """Whether the file that was opened still has its name: whoever held the lock before may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def check_space(folder: Path, missing: int) -> None:
    """Raise StorageError unless the file system has room for `missing` bytes more."""
    free = shutil.disk_usage(folder).free
    if free < missing + SPARE_BYTES:
        need = f"{(missing + SPARE_BYTES) / 1e9:.2f} GB are needed in {folder}, {free / 1e9:.2f} GB are free"
        raise StorageError(need, fix="free some space, or set KMINT_MODELS_DIR to a place with room")
