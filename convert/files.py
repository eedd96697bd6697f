"""Files that appear whole or not at all, and the temporary folders in which they are made.

A temporary folder lies in the folder of its target, so that a rename finishes the work. `mkdtemp`
names it, and only its owner may enter it. A link planted under a guessed name is never followed,
and no file of another program is touched. The process that makes a folder holds a lock in it. A
folder with a free lock was left by a killed process, and `sweep` removes it.

Limits: on a file system without locks, an abandoned folder must be removed by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

PREFIX = ".kmint-tmp-"
_LOCK = ".kmint-lock"
_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")

Announce = Callable[[Path], AbstractContextManager[None]]
_announce: Announce | None = None


def announce_folders(announce: Announce) -> None:
    """Enter `announce(parent)` while a temporary folder is made in `parent`.

    An application thus learns where to sweep.
    """
    global _announce
    _announce = announce


class NoPlainFile(ValueError):
    """A file of another kind or size than expected; the message is a one-line reason."""


def read_plain(path: Path, *, most_bytes: int) -> bytes:
    """The content of a regular file. Raises NoPlainFile, or OSError as reading does.

    A pipe or a device is refused at once: reading it could wait or never end.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NoPlainFile("it is not a regular file")
    with open(number, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NoPlainFile(f"it is longer than {most_bytes >> 10:,} KiB")
    return content


def system_folder() -> Path:
    """The system's folder for temporary files.

    `tempfile.gettempdir` writes a file to try it, and a kill would leave that file.
    """
    named = [Path(os.environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    return next(
        (place for place in (*named, Path("/tmp"), Path("/var/tmp")) if place.is_dir()), Path.cwd()
    )


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new private folder in `parent`, removed at the end. Raises OSError.

    Without a `parent` it lies in the system's folder for temporary files.
    """
    place = parent or system_folder()
    # A folder within another one is removed with it.
    announced = (
        nullcontext() if _announce is None or _NAME.fullmatch(place.name) else _announce(place)
    )
    with announced:
        folder, lock = _new(place)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an error.

    After an error `path` is as before. Raises OSError.
    """
    with temporary_folder(path.parent) as folder:
        made = folder / path.name
        with made.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        move(made, path)


def write_text(path: Path, text: str) -> None:
    """Replace the content of `path` by `text` in UTF-8, whole or not at all. Raises OSError."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def move(made: Path, path: Path) -> None:
    """Give a finished file its final name in the same file system. Raises OSError.

    The rename outlasts a power failure.
    """
    os.replace(made, path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Write the content of a file to the disk before it gets its name. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sweep(parent: Path) -> tuple[Path, ...]:
    """Remove the temporary folders that killed processes left in `parent`.

    Returns the folders that are in use or cannot be removed. Raises OSError when `parent` cannot
    be listed.
    """
    with os.scandir(parent) as entries:
        found = [
            Path(entry.path)
            for entry in entries
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    return tuple(folder for folder in sorted(found) if not _removed(folder))


def drop_unlocked(folder: Path) -> None:
    """Remove the files in `folder` that no process holds a lock on. Raises OSError."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError), path.open("rb") as file:
            if _locked(file.fileno(), certain=True):
                path.unlink()


def _new(parent: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # a sweep took the folder, which had no lock yet
        if _locked(lock) and (folder / _LOCK).exists():
            return folder, lock
        os.close(lock)


def _removed(folder: Path) -> bool:
    try:
        if folder.lstat().st_uid != os.getuid():
            return False
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            # The folder is empty when its process was killed before the lock; any other is a
            # stranger's.
            folder.rmdir()
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not _locked(lock, certain=True):
            return False
        _remove(folder)
        return not folder.exists()
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Delete the folder, the lock last: after a kill or an error the next sweep continues."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != _LOCK:
                os.unlink(entry.path)
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()


def _locked(descriptor: int, *, certain: bool = False) -> bool:
    """Take the lock; False when another process has it.

    A file system without locks counts as locked, unless it must be `certain`.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not certain
    return True
