"""Gates and grids in the history: repeated measurements of a kernel, with their results.

A measurement of a draft goes when the draft does. A measurement of a file keeps the file's name and
digest, never its text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from kmint_tui.documents import BadDocument, compact, parse_json
from kmint_tui.history.database import connect, damaged, transaction, translated
from kmint_tui.history.records import Reference
from kmint_tui.typed import Mistyped, made

Kind = Literal["gate", "grid"]


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """The measured kernel, the machine, the result in one line, and the JSON document."""

    kind: Kind
    name: str
    source_sha256: str
    op: str
    device: str
    torch: str
    triton: str
    result: str
    document: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NewMeasurement(_Measured):
    """A measurement that ended. `name` is the draft's id or the file's path."""

    draft: Reference | None


@dataclass(frozen=True, kw_only=True)
class Measurement(_Measured):
    """A stored measurement; `made` is UTC, ISO 8601."""

    id: int
    made: str


class Measurements:
    """The measurements of one history. Use it from one thread, as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> Measurements:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def add(self, made: NewMeasurement) -> int:
        """Store a measurement; returns its number. Raises StorageError."""
        place = (made.draft.session, made.draft.number) if made.draft else (None, None)
        with transaction(self._connection, self._path):
            # A draft may be removed during its measurement: then only its digest is stored.
            known = self._connection.execute(
                "SELECT 1 FROM drafts WHERE session = ? AND number = ?", place
            ).fetchone()
            cursor = self._connection.execute(
                "INSERT INTO measurements (made, kind, name, session, number, source_sha256,"
                " op, device, torch, triton, result, document)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    datetime.now(UTC).isoformat(timespec="milliseconds"),
                    made.kind,
                    made.name,
                    *(place if known else (None, None)),
                    made.source_sha256,
                    made.op,
                    made.device,
                    made.torch,
                    made.triton,
                    made.result,
                    compact(made.document),
                ),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def of(self, source_sha256: str) -> tuple[Measurement, ...]:
        """All measurements of a kernel's text, newest first."""
        with translated(self._path):
            rows = self._connection.execute(
                "SELECT * FROM measurements WHERE source_sha256 = ? ORDER BY id DESC",
                (source_sha256,),
            ).fetchall()
        return tuple(self._measurement(row) for row in rows)

    def all(self, kind: Kind) -> tuple[Measurement, ...]:
        """All measurements of a kind, newest first."""
        with translated(self._path):
            rows = self._connection.execute(
                "SELECT * FROM measurements WHERE kind = ? ORDER BY id DESC", (kind,)
            ).fetchall()
        return tuple(self._measurement(row) for row in rows)

    def _measurement(self, row: sqlite3.Row) -> Measurement:
        try:
            return made(Measurement, {**row, "document": parse_json(row["document"])})
        except (BadDocument, Mistyped, TypeError) as error:
            raise damaged(
                self._path, f"measurement {row['id']} changed since it was stored: {error}"
            ) from error
