"""The history's database: its schema, its write-ahead log, and SQLite's errors as kmint's.

One connection belongs to one thread. Every change is one transaction, so a killed process leaves
whole rows or none. The schema has one function a version. A released function is never changed; a
new version is a new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, KmintError, StorageError, storage_error
from kmint_tui.history.backups import back_up, way_out

BUSY_SECONDS = 30.0
"""Seconds that kmint waits for another process to release the database."""
_RETRY_SECONDS = 0.01
_CANNOT_WRITE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)


def version_1(connection: sqlite3.Connection) -> None:
    """Texts by their sha256, sessions, and one row a draft."""
    connection.execute(
        "CREATE TABLE texts (sha256 TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID"
    )
    connection.execute(
        """
        CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            started TEXT NOT NULL,
            finished TEXT,
            process TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('running', 'done', 'stopped', 'failed')),
            op TEXT NOT NULL,
            model TEXT NOT NULL,
            model_file TEXT NOT NULL,
            model_sha256 TEXT NOT NULL,
            system_sha256 TEXT NOT NULL REFERENCES texts (sha256),
            user_sha256 TEXT NOT NULL REFERENCES texts (sha256),
            seed INTEGER NOT NULL,
            wanted INTEGER NOT NULL,
            settings TEXT NOT NULL,
            environment TEXT NOT NULL
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE drafts (
            session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            source_sha256 TEXT NOT NULL REFERENCES texts (sha256),
            seed INTEGER NOT NULL,
            temperature REAL NOT NULL,
            tokens INTEGER NOT NULL,
            seconds REAL NOT NULL,
            finish TEXT NOT NULL CHECK (finish IN ('stop', 'length', 'cancelled')),
            duplicate_of INTEGER,
            outcome TEXT,
            ratio REAL,
            verdict TEXT,
            PRIMARY KEY (session, number)
        ) WITHOUT ROWID
        """
    )
    connection.execute("CREATE INDEX sessions_by_op ON sessions (op, id)")


def version_2(connection: sqlite3.Connection) -> None:
    """Reigns: the holders of each crown, with start and end; one present reign a crown."""
    connection.execute(
        """
        CREATE TABLE reigns (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            op TEXT NOT NULL,
            cell TEXT NOT NULL,
            device TEXT NOT NULL,
            torch TEXT NOT NULL,
            triton TEXT NOT NULL,
            draft TEXT NOT NULL,
            model TEXT NOT NULL,
            source_sha256 TEXT NOT NULL REFERENCES texts (sha256),
            began TEXT NOT NULL,
            ended TEXT,
            device_us REAL NOT NULL,
            ratio REAL NOT NULL,
            bar TEXT NOT NULL,
            duel TEXT
        )
        """
    )
    connection.execute(
        "CREATE UNIQUE INDEX present_reigns ON reigns (op, cell, device, torch, triton) WHERE "
        "ended IS NULL"
    )


def version_3(connection: sqlite3.Connection) -> None:
    """The origin of a draft: round, earlier draft, author, and changed constants."""
    connection.execute("ALTER TABLE drafts ADD COLUMN round INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE drafts ADD COLUMN parent INTEGER")
    connection.execute(
        "ALTER TABLE drafts ADD COLUMN author TEXT NOT NULL DEFAULT 'smith' CHECK (author IN "
        "('smith', 'tuner'))"
    )
    connection.execute("ALTER TABLE drafts ADD COLUMN changes TEXT NOT NULL DEFAULT ''")


def version_4(connection: sqlite3.Connection) -> None:
    """Measurements: gates and grids, of a draft or of a file."""
    connection.execute(
        """
        CREATE TABLE measurements (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            made TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('gate', 'grid')),
            name TEXT NOT NULL,
            session INTEGER,
            number INTEGER,
            source_sha256 TEXT NOT NULL,
            op TEXT NOT NULL,
            device TEXT NOT NULL,
            torch TEXT NOT NULL,
            triton TEXT NOT NULL,
            result TEXT NOT NULL,
            document TEXT NOT NULL,
            FOREIGN KEY (session, number) REFERENCES drafts (session, number) ON DELETE CASCADE
        )
        """
    )
    connection.execute("CREATE INDEX measurements_by_source ON measurements (source_sha256, id)")
    connection.execute("CREATE INDEX measurements_by_draft ON measurements (session, number)")


def version_5(connection: sqlite3.Connection) -> None:
    """Adds kmint's template as an author of drafts. SQLite cannot change a check: the column is
    replaced.
    """
    connection.execute("ALTER TABLE drafts RENAME COLUMN author TO author_before")
    connection.execute(
        "ALTER TABLE drafts ADD COLUMN author TEXT NOT NULL DEFAULT 'smith' CHECK (author IN "
        "('smith', 'template', 'tuner'))"
    )
    connection.execute("UPDATE drafts SET author = author_before")
    connection.execute("ALTER TABLE drafts DROP COLUMN author_before")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    version_1,
    version_2,
    version_3,
    version_4,
    version_5,
)


def connect(path: Path, *, damaged: bool = False) -> sqlite3.Connection:
    """Open the history at `path`; create it or migrate its schema if necessary.

    With `damaged`, SQLite also opens a file that is shorter than its header says. Raises
    StorageError if kmint cannot write it, EnvironmentUnfit if it is damaged or of a newer kmint.
    """
    paths.private_dir(path.parent)
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            if damaged:
                connection.execute("PRAGMA writable_schema = ON")
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    _make_private(path)
    return connection


def _make_private(path: Path) -> None:
    # The file may belong to another user, or lie on a read-only mount: then its mode stays.
    with suppress(OSError):
        path.chmod(0o600)


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Apply all changes of the block, or none of them."""
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
    """Raise SQLite's errors as kmint's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _as_kmint(error, path) from error


def _as_kmint(error: sqlite3.DatabaseError, path: Path) -> KmintError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CANNOT_WRITE:
        return StorageError(
            f"{path}: {error}",
            fix="free some space, or set KMINT_HOME to a folder that you may write to",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL):
        return Busy(
            f"another process has locked {path} for more than {BUSY_SECONDS:.0f} s",
            fix="end the other kmint and try again",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return EnvironmentUnfit(
            f"{path}: {error}",
            fix=way_out(path),
            title="history not usable",
        )
    return damaged(path, str(error))


class Busy(StorageError):
    """Another process has locked the history for longer than `BUSY_SECONDS`."""


class Damaged(EnvironmentUnfit):
    """The history's file no longer holds the data that kmint stored."""

    title = "history damaged"


def damaged(path: Path, reason: str) -> Damaged:
    """The error for a file that no longer holds the stored data, with the commands that help."""
    return Damaged(f"{path}: {reason}", fix=way_out(path))


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Change the journal to the write-ahead log, also while other processes open the same new file.

    SQLite itself does not wait for the lock here (`sqlite3BtreeSetVersion`). It starts with a read,
    and reports at once that another process has the write lock.
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
    """Bring the schema up to date. Raises StorageError when the copy before that fails."""
    if _version(connection, path) == len(MIGRATIONS):
        return
    with transaction(connection, path):
        # Read again under the lock: another process may have migrated the schema meanwhile.
        if 0 < _version(connection, path) < len(MIGRATIONS):
            _back_up(path)
        for number, migration in enumerate(
            MIGRATIONS[_version(connection, path) :], start=_version(connection, path) + 1
        ):
            migration(connection)
            connection.execute(f"PRAGMA user_version = {number}")


def _back_up(path: Path) -> None:
    try:
        back_up(path)
    except OSError as error:
        raise storage_error(path, error) from error


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise EnvironmentUnfit(
            f"{path} has schema {version}; this kmint knows schemas up to {len(MIGRATIONS)}",
            fix="update kmint, or set KMINT_HOME to another folder",
            title="history of a newer kmint",
        )
    return version
