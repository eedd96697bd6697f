"""A second history made of what the undamaged pages of a damaged one hold.

Texts are known by their digest, so that a wrong one cannot slip in; sessions and drafts by the constraints of their tables. What
was removed before and still lies on a page that is in use again may come back.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from kmint_tui.history.database import connect, transaction
from kmint_tui.history.pages import Row, Value, rows

_SESSION_COLUMNS = 15
_DRAFT_COLUMNS = tuple(
    "session number source_sha256 seed temperature tokens seconds finish duplicate_of outcome ratio verdict"
    " round parent author changes".split()
)
_OLDEST_DRAFT_COLUMNS = 12


def salvage(damaged: Path, into: Path) -> None:
    """Make a history at `into`, which must not exist. Raises OSError when `damaged` cannot be read at all."""
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(damaged)) as connection:
        # What is still in the write-ahead log is not on the pages.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = damaged.read_bytes()
    connection = connect(into)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        with transaction(connection, into):
            for row in rows(content):
                with suppress(sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError):
                    _keep(connection, row)
    finally:
        connection.close()


def _keep(connection: sqlite3.Connection, row: Row) -> None:
    values = row.values
    if row.key is None and len(values) == 2 and _is_text(*values):
        connection.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", values)
    elif row.key is None and _OLDEST_DRAFT_COLUMNS <= len(values) <= len(_DRAFT_COLUMNS) and _is_digest(values[2]):
        names = _DRAFT_COLUMNS[: len(values)]
        connection.execute(f"INSERT OR IGNORE INTO drafts ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", values)
    elif row.key is not None and len(values) == _SESSION_COLUMNS and values[0] is None and all(map(_is_digest, values[9:11])):
        connection.execute(f"INSERT OR IGNORE INTO sessions VALUES ({', '.join('?' * _SESSION_COLUMNS)})", (row.key, *values[1:]))


def _is_text(digest: Value, content: Value) -> bool:
    return isinstance(content, str) and hashlib.sha256(content.encode("utf-8")).hexdigest() == digest


def _is_digest(value: Value) -> bool:
    return isinstance(value, str) and len(value) == 64
