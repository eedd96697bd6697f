"""The history's reads and writes. Every write is one transaction; nothing finished is lost by a kill."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.history.database import connect, damaged, transaction, translated
from kmint_tui.history.process import is_gone, own_process
from kmint_tui.history.records import Draft, NewDraft, NewSession, Session, State, Summary, draft_id

PASSED = ("win", "tie", "unsure", "loss", "correct")
"""Outcomes of a correct kernel, the best first."""

_PASSED_SQL = "(" + ", ".join(f"'{outcome}'" for outcome in PASSED) + ")"
_RANK_SQL = "CASE outcome " + " ".join(f"WHEN '{outcome}' THEN {rank}" for rank, outcome in enumerate(PASSED)) + " ELSE 99 END"


class History:
    """One open history. Use it from one thread, as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> History:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; what was written stays."""
        self._connection.close()

    def begin(self, session: NewSession) -> int:
        """Store a session that is about to run; returns its id."""
        with transaction(self._connection, self._path):
            cursor = self._connection.execute(
                "INSERT INTO sessions (started, process, state, op, model, model_file, model_sha256, system_sha256, user_sha256, seed,"
                " wanted, settings, environment) VALUES (?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    _now(),
                    own_process(),
                    session.op,
                    session.model,
                    session.model_file,
                    session.model_sha256,
                    self._keep(session.system),
                    self._keep(session.user),
                    session.seed,
                    session.wanted,
                    compact(session.settings),
                    compact(session.environment),
                ),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def add_draft(self, session: int, draft: NewDraft) -> None:
        """Store a finished draft."""
        with transaction(self._connection, self._path):
            self._connection.execute(
                "INSERT INTO drafts (session, number, source_sha256, seed, temperature, tokens, seconds, finish, duplicate_of,"
                " round, parent, author, changes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session,
                    draft.number,
                    self._keep(draft.source),
                    draft.seed,
                    draft.temperature,
                    draft.tokens,
                    draft.seconds,
                    draft.finish,
                    draft.duplicate_of,
                    draft.round,
                    draft.parent,
                    draft.author,
                    draft.changes,
                ),
            )

    def set_verdict(self, session: int, number: int, verdict: Mapping[str, Any], *, ratio: float | None) -> None:
        """Store a draft's verdict (`kmint.verdict/1`) and its ratio to the fastest baseline, over an earlier one if there is one."""
        with transaction(self._connection, self._path):
            self._connection.execute(
                "UPDATE drafts SET outcome = ?, ratio = ?, verdict = ? WHERE session = ? AND number = ?",
                (verdict["verdict"], ratio, compact(verdict), session, number),
            )

    def finish(self, session: int, state: State) -> None:
        """Mark a session as over."""
        with transaction(self._connection, self._path):
            self._connection.execute("UPDATE sessions SET finished = ?, state = ? WHERE id = ?", (_now(), state, session))

    def summaries(self, *, op: str | None = None, limit: int | None = None) -> tuple[Summary, ...]:
        """The sessions, the newest first."""
        query = (
            "SELECT s.id, s.started, s.state, s.process, s.op, s.model, s.wanted,"
            " count(d.number) FILTER (WHERE d.finish <> 'cancelled') AS drafted,"
            f" coalesce(sum(coalesce(d.outcome, o.outcome) IN {_PASSED_SQL}), 0) AS passed, max(d.ratio) AS ratio,"
            f" (SELECT outcome FROM drafts WHERE session = s.id AND outcome IS NOT NULL ORDER BY {_RANK_SQL} LIMIT 1) AS best"
            " FROM (SELECT * FROM sessions WHERE :op IS NULL OR op = :op ORDER BY id DESC LIMIT :limit) AS s"
            " LEFT JOIN drafts AS d ON d.session = s.id LEFT JOIN drafts AS o ON o.session = d.session AND o.number = d.duplicate_of"
            " GROUP BY s.id ORDER BY s.id DESC"
        )
        with translated(self._path):
            rows = self._connection.execute(query, {"op": op, "limit": -1 if limit is None else limit}).fetchall()
        return tuple(Summary(**_with_state(row)) for row in rows)

    def session(self, number: int, *, whole: bool = True) -> Session:
        """One session. Raises UsageError when there is none of that id.

        With `whole` false, a note stands where one of its prompts should, if that is lost: so that its drafts are not lost with it.
        """
        with translated(self._path):
            row = self._connection.execute(
                "SELECT s.*, a.content AS system, b.content AS user FROM sessions AS s"
                " LEFT JOIN texts AS a ON a.sha256 = s.system_sha256 LEFT JOIN texts AS b ON b.sha256 = s.user_sha256 WHERE s.id = ?",
                (number,),
            ).fetchone()
        if row is None:
            raise UsageError(f"the history holds no session {number}", fix="`kmint history` lists them")
        values = {key: value for key, value in _with_state(row).items() if not key.endswith("_sha256") or key == "model_sha256"}
        read = self._whole if whole else self._whole_or_note
        values |= {name: read(row, name, f"session {number}") for name in ("system", "user")}
        values |= {name: self._document(row, name, f"session {number}") for name in ("settings", "environment")}
        return Session(**values)

    def session_numbers(self) -> tuple[int, ...]:
        """The ids of all sessions, also of those of which only drafts are left."""
        query = "SELECT id FROM sessions UNION SELECT session FROM drafts ORDER BY 1"
        with translated(self._path):
            return tuple(row[0] for row in self._connection.execute(query))

    def draft_numbers(self, session: int) -> tuple[int, ...]:
        """The numbers of a session's drafts; readable also where their texts are not."""
        with translated(self._path):
            rows = self._connection.execute("SELECT number FROM drafts WHERE session = ? ORDER BY number", (session,)).fetchall()
        return tuple(row["number"] for row in rows)

    def drafts(self, session: int) -> tuple[Draft, ...]:
        """The drafts of a session, in the order of their numbers."""
        return self._drafts("d.session = ?", (session,))

    def draft(self, session: int, number: int) -> Draft:
        """One draft. Raises UsageError when there is none of that id."""
        found = self._drafts("d.session = ? AND d.number = ?", (session, number))
        if not found:
            raise UsageError(
                f"the history holds no draft {session}.{number}", fix=f"`kmint history show {session}` lists the session's drafts"
            )
        return found[0]

    def _drafts(self, condition: str, values: tuple[int, ...]) -> tuple[Draft, ...]:
        query = (
            "SELECT d.*, t.content AS source FROM drafts AS d LEFT JOIN texts AS t ON t.sha256 = d.source_sha256"
            f" WHERE {condition} ORDER BY d.number"
        )
        with translated(self._path):
            rows = self._connection.execute(query, values).fetchall()
        return tuple(self._draft(row) for row in rows)

    def _draft(self, row: sqlite3.Row) -> Draft:
        what = f"draft {draft_id(row['session'], row['number'])}"
        verdict = self._document(row, "verdict", what) if row["verdict"] is not None else None
        return Draft(**{**row, "source": self._whole(row, "source", what), "verdict": verdict})

    def _whole(self, row: sqlite3.Row, name: str, what: str) -> str:
        """A text that still is what its digest says; SQLite itself notices only damage to the structure of a page."""
        content = row[name]
        if not isinstance(content, str) or _digest(content) != row[f"{name}_sha256"]:
            raise damaged(self._path, f"the {name} of {what} is not what was stored")
        return content

    def _whole_or_note(self, row: sqlite3.Row, name: str, what: str) -> str:
        try:
            return self._whole(row, name, what)
        except EnvironmentUnfit:
            return f"[lost through damage; its sha256 was {row[f'{name}_sha256']}]"

    def _document(self, row: sqlite3.Row, name: str, what: str) -> dict[str, Any]:
        try:
            found = json.loads(row[name])
        except (ValueError, TypeError):
            found = None
        if not isinstance(found, dict):
            raise damaged(self._path, f"the {name} of {what} is not what was stored")
        return found

    def _keep(self, text: str) -> str:
        content = text.encode("utf-8", "replace").decode("utf-8")
        digest = _digest(content)
        self._connection.execute("INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)", (digest, content))
        return digest


def _with_state(row: sqlite3.Row) -> dict[str, Any]:
    """The row with its process replaced by what that says of its state."""
    values: dict[str, Any] = {key: row[key] for key in row.keys()}
    process = values.pop("process")
    if values["state"] == "running" and is_gone(process):
        values["state"] = "cut short"
    return values


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
