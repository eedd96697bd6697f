"""The notes of places that may hold unfinished files of kmint.

kmint makes temporary folders next to their targets, which may lie anywhere. It notes every such
place in one locked file until nothing unfinished is left there. Its own folders need no note.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from convert import files
from kmint_tui import paths
from kmint_tui.errors import StorageError

_NOTES = "unfinished"
_MOST_PLACES = 1000
_holding: ContextVar[bool] = ContextVar("holding", default=False)


@contextmanager
def noted(place: Path) -> Iterator[None]:
    """Note that something unfinished is about to lie in `place`; no sweep runs within the block.

    Where no note can be written, the work goes on without one. An inner block uses the lock of the
    outer one.
    """
    with ExitStack() as held:
        if not _holding.get() and place.absolute() not in own_places():
            held.callback(_holding.reset, _holding.set(True))
            _write_down(place.absolute(), held)
        yield


def _write_down(place: Path, held: ExitStack) -> None:
    with contextlib.suppress(OSError, StorageError):
        paths.private_dir(paths.state_dir())
        notes = held.enter_context(open_notes(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX))
        if place not in read_places(notes):
            notes.seek(0, os.SEEK_END)
            notes.write(note_line(place))
            notes.flush()


def own_places() -> tuple[Path, ...]:
    """The folders of kmint and the system's temporary folder, which are swept without a note."""
    own = (
        paths.config_dir(),
        paths.data_dir(),
        paths.models_dir(),
        paths.cache_dir(),
        paths.state_dir(),
    )
    return tuple(dict.fromkeys(place.absolute() for place in (files.system_folder(), *own)))


@contextmanager
def open_notes(flags: int, lock: int) -> Iterator[IO[str]]:
    """The file of notes, locked.

    Raises OSError, also when another process holds the lock and `lock` does not wait.
    """
    descriptor = os.open(paths.state_dir() / _NOTES, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(
        descriptor, "r" if flags == os.O_RDONLY else "r+", encoding="utf-8", errors="replace"
    ) as notes:
        fcntl.flock(descriptor, lock)
        yield notes


def read_places(notes: IO[str]) -> list[Path]:
    """The absolute paths in the file of notes; lines that hold none are left out."""
    found: list[Path] = []
    notes.seek(0)
    for line in notes:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            found.append(Path(json.loads(line)))
    return [place for place in found if place.is_absolute() and "\0" not in str(place)][
        -_MOST_PLACES:
    ]


def note_line(place: Path) -> str:
    """The line of the file of notes for one place."""
    return json.dumps(str(place)) + "\n"
