"""Opening the history's database: write-ahead log, migrations, and SQLite's failures as kmint's own.

One connection belongs to one thread. Every change is one transaction, so a kill leaves whole rows or none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, KmintError, StorageError
from kmint_tui.history.migrations import MIGRATIONS

BUSY_SECONDS = 30.0
_RETRY_SECONDS = 0.01

_CANNOT_WRITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the history at `path`, made or brought up to date if need be.

    Raises StorageError when it cannot be written, EnvironmentUnfit when it is damaged or of a newer kmint.
    """
    paths.private_dir(path.parent)
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    path.chmod(0o600)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All of the block's changes, or none of them."""
    with translated(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors, raised as kmint's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _as_kmint(error, path) from error


def _as_kmint(error: sqlite3.DatabaseError, path: Path) -> KmintError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CANNOT_WRITE:
        return StorageError(f"{path}: {error}", fix="free some space, or set KMINT_HOME to a place you may write to")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL):
        return Busy(f"{path} is held by another process for more than {BUSY_SECONDS:.0f} s", fix="end the other kmint and try again")
    if code == sqlite3.SQLITE_NOTADB:
        return EnvironmentUnfit(f"{path}: {error}", fix=f"move {path} aside; kmint then starts a new history", title="history not usable")
    return damaged(path, str(error))


class Busy(StorageError):
    """Another process holds the history for longer than is waited for."""


class Damaged(EnvironmentUnfit):
    """The history's file does not hold any more what was stored in it."""

    title = "history damaged"


def damaged(path: Path, reason: str) -> Damaged:
    """What to raise when the file does not hold any more what was stored in it."""
    fix = f"`kmint history export > kept.jsonl` writes what can be read; move {path} aside, then `kmint history import kept.jsonl`"
    return Damaged(f"{path}: {reason}", fix=fix)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Change the journal to the write-ahead log, also while other processes open the same new file.

    SQLite begins this change with a read and asks for the write lock after it, where it reports a lock held by somebody else at once
    instead of waiting for `BUSY_SECONDS` (`sqlite3BtreeSetVersion`); so the waiting is done here.
    """
    until = monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() >= until:
                raise
        sleep(_RETRY_SECONDS)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) == len(MIGRATIONS):
        return
    with transaction(connection, path):
        # Read again under the lock: another process may just have done it.
        for number, migration in enumerate(MIGRATIONS[_version(connection, path) :], start=_version(connection, path) + 1):
            migration(connection)
            connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise EnvironmentUnfit(
            f"{path} has schema {version}; this kmint knows schemas up to {len(MIGRATIONS)}",
            fix="update kmint, or set KMINT_HOME to another place",
            title="history of a newer kmint",
        )
    return version
