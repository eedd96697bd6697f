"""Unfinished files of killed processes: kmint removes them at its start, `kmint doctor` lists them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.unfinished_places import note_line, noted, open_notes, own_places, read_places

LOGS_KEPT = 10
_LOGS = ("fault-*.log", "smoke-*.log", "tui-*.log")
# The referee locks its files here itself, because it imports nothing of the application.
_KERNELS = Path("referee", "kernels", "unfinished")


@dataclass(frozen=True)
class Leftover:
    """Unfinished work: a temporary folder in use, or a download that can continue."""

    path: Path
    nbytes: int
    resumable: bool


def begin() -> None:
    """Remove files that killed processes left, and note the places of this process from now on.

    This never fails: the next start tries again.
    """
    files.announce_folders(noted)
    for place in own_places():
        with contextlib.suppress(OSError):
            files.sweep(place)
    with contextlib.suppress(OSError):
        files.drop_unlocked(paths.cache_dir() / _KERNELS)
    with contextlib.suppress(OSError):
        _drop_old_logs()
    with (
        contextlib.suppress(OSError),
        open_notes(os.O_RDWR, fcntl.LOCK_EX | fcntl.LOCK_NB) as notes,
    ):
        known = read_places(notes)
        kept = [place for place in known if _left_in(place)]
        if kept != known:
            text = "".join(note_line(place) for place in kept)
            notes.seek(0)
            notes.write(text)
            notes.truncate()


def found() -> tuple[Leftover, ...]:
    """The unfinished work in every place that kmint knows."""
    from kmint_tui.models import part

    places: list[Path] = []
    with contextlib.suppress(OSError), open_notes(os.O_RDONLY, fcntl.LOCK_SH) as notes:
        places = read_places(notes)
    left: list[Leftover] = []
    for place in dict.fromkeys((*own_places(), *places)):
        with contextlib.suppress(OSError):
            left += [Leftover(folder, _size(folder), False) for folder in files.sweep(place)]
    for place in dict.fromkeys(places):
        with contextlib.suppress(OSError):
            left += [Leftover(path, _size(path), True) for path in part.unfinished(place)]
    return tuple(left)


def _left_in(place: Path) -> bool:
    """True if unfinished work remains in `place` after a sweep."""
    from kmint_tui.models import part

    try:
        return bool(files.sweep(place)) | bool(part.sweep(place))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _drop_old_logs() -> None:
    for pattern in _LOGS:
        logs = sorted(paths.log_dir().glob(pattern), key=lambda path: path.stat().st_mtime)
        for old in logs[:-LOGS_KEPT]:
            old.unlink(missing_ok=True)


def _size(path: Path) -> int:
    inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    total = 0
    for file in (path, *inside):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
    return total
