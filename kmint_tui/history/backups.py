"""Dated copies of the history, next to its database.

kmint makes one before each migration of the schema, and one a week when a session begins. Each name
has the time and the schema. A copy holds everything: sessions, crowns and measurements.
Limits: the newest copies stay, and the rest go. A copy also holds sessions that were removed later.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from convert import files

MOST_KEPT = 3
"""Number of copies that stay; an older one goes when a new one is made."""
WEEKLY = timedelta(days=7)
"""Least time between two copies that no migration asks for."""
_TIME = "%Y%m%dT%H%M%SZ"


def back_up(path: Path, *, checked: bool = False) -> Path | None:
    """Copy the database at `path` page by page, with the pages in its write-ahead log.

    With `checked`, kmint drops a copy that SQLite finds damaged and returns None. Writers need not
    wait for the copy. Raises sqlite3.Error or OSError.
    """
    with (
        files.temporary_folder(path.parent) as folder,
        closing(sqlite3.connect(path)) as source,
    ):
        schema = source.execute("PRAGMA user_version").fetchone()[0]
        name = f"{path.stem}-{datetime.now(UTC).strftime(_TIME)}-schema{schema}{path.suffix}"
        made = folder / name
        # SQLite keeps the mode of a file that exists.
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(made)) as copy:
            source.backup(copy)
            if checked and copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                return None
        files.move(made, path.with_name(name))
    for old in backups(path)[MOST_KEPT:]:
        old.unlink(missing_ok=True)
    return path.with_name(name)


def back_up_weekly(path: Path) -> None:
    """Copy the database if it has a session and the newest copy is a week old.

    A failure leaves the history as it is.
    """
    newest = next(iter(backups(path)), None)
    if newest is not None and datetime.now(UTC) - _made(path, newest) < WEEKLY:
        return
    with suppress(sqlite3.Error, OSError):
        if _has_session(path):
            back_up(path, checked=True)


def _has_session(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as source:
        return source.execute("SELECT 1 FROM sessions LIMIT 1").fetchone() is not None


def backups(path: Path) -> tuple[Path, ...]:
    """The copies of the database at `path`, the newest first."""
    found = []
    for file in path.parent.glob(f"{path.stem}-*-schema*{path.suffix}"):
        with suppress(ValueError):
            found.append((_made(path, file), file))
    return tuple(file for _, file in sorted(found, reverse=True))


def way_out(path: Path) -> str:
    """The shell commands that restore a damaged history from its newest copy and its readable part.

    Without a copy, the readable part alone makes the new history.
    """
    aside = path.with_name("damaged-history")
    move = f"mkdir {_word(aside)} && mv {_word(path)}* {_word(aside)}"
    export, take_in = "kmint history export > kept.jsonl", "kmint history import kept.jsonl"
    copies = backups(path)
    if not copies:
        return (
            f"`{export}` writes the readable part; `{move}` moves the damaged file away;"
            f" `{take_in}` starts a new history with the readable part"
        )
    return (
        f"`{export}` writes the readable part; `{move}` moves the damaged file away;"
        f" `cp {_word(copies[0])} {_word(path)}` brings the newest backup back;"
        f" `{take_in}` adds later sessions"
    )


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def _made(path: Path, backup: Path) -> datetime:
    """The time in a copy's name. Raises ValueError for a file that kmint did not name."""
    time = backup.name.removeprefix(f"{path.stem}-").partition("-")[0]
    return datetime.strptime(time, _TIME).replace(tzinfo=UTC)
