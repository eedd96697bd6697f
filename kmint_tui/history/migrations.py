"""The schema of the history, one function a version. A released function is never changed; a new version is a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def version_1(connection: sqlite3.Connection) -> None:
    """Texts by their sha256, sessions, and one row a draft."""
    connection.execute("CREATE TABLE texts (sha256 TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID")
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
    """Reigns: who held which crown, from when until when. At most one present reign a crown."""
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
    connection.execute("CREATE UNIQUE INDEX present_reigns ON reigns (op, cell, device, torch, triton) WHERE ended IS NULL")


def version_3(connection: sqlite3.Connection) -> None:
    """Where a draft comes from: the round it was made in, the draft it was made from, who made it, and what was changed."""
    connection.execute("ALTER TABLE drafts ADD COLUMN round INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE drafts ADD COLUMN parent INTEGER")
    connection.execute("ALTER TABLE drafts ADD COLUMN author TEXT NOT NULL DEFAULT 'smith' CHECK (author IN ('smith', 'tuner'))")
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


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (version_1, version_2, version_3, version_4)
