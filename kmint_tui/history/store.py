"""Reads and writes of the history. Each write is one transaction: a kill loses no stored draft.

A session names its process, which tells one that runs from one whose process was killed. Of a
damaged table, the keys that SQLite can still read are listed: it gives up a scan at the first
damaged page. A scan from the other end reads the keys behind that page; keys between the two ends
are tried one by one.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kmint_tui.documents import BadDocument, compact, parse_json
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError
from kmint_tui.history.backups import back_up_weekly
from kmint_tui.history.database import Damaged, connect, damaged, transaction, translated
from kmint_tui.history.records import Draft, NewDraft, NewSession, Session, State, Summary, draft_id
from kmint_tui.history.verdicts import VerdictDocument
from kmint_tui.typed import Kind, Mistyped, made

PASSED = ("win", "tie", "unsure", "loss", "correct")
"""Outcomes of a correct kernel, best first."""

_PASSED_SQL = "(" + ", ".join(f"'{outcome}'" for outcome in PASSED) + ")"
_RANK_SQL = (
    "CASE outcome "
    + " ".join(f"WHEN '{outcome}' THEN {rank}" for rank, outcome in enumerate(PASSED))
    + " ELSE 99 END"
)
_DRAFT_NUMBERS = "SELECT number FROM drafts WHERE session = ? ORDER BY number"


class History:
    """One open history. Use it from one thread, as a context manager."""

    def __init__(self, path: Path, *, damaged: bool = False) -> None:
        """Open the history at `path`; with `damaged` also a file that was cut short."""
        self._path = path
        self._connection = connect(path, damaged=damaged)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def begin(self, session: NewSession) -> int:
        """Store a session that is about to run; returns its id."""
        back_up_weekly(self._path)
        with transaction(self._connection, self._path):
            return self._insert_session(session)

    def reopen(self, session: int) -> None:
        """Let a session go on in this process. Raises UsageError for one that another process has."""
        with transaction(self._connection, self._path):
            row = self._connection.execute(
                "SELECT process, state FROM sessions WHERE id = ?", (session,)
            ).fetchone()
            if row is None or (row["state"] == "running" and not is_gone(row["process"])):
                raise UsageError(
                    f"session {session} runs in another process, or is gone",
                    fix=f"`kmint history show {session}` shows its drafts",
                )
            self._connection.execute(
                "UPDATE sessions SET state = 'running', process = ?, finished = NULL WHERE id = ?",
                (own_process(), session),
            )

    def _insert_session(self, session: NewSession) -> int:
        cursor = self._connection.execute(
            "INSERT INTO sessions (started, process, state, op, model, model_file, model_sha256,"
            " system_sha256, user_sha256, seed, wanted, settings, environment) VALUES (?, ?, "
            "'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                now(),
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

    def add_draft(self, session: int, *drafts: NewDraft) -> None:
        """Store finished drafts, all or none; each replaces one of its number that was cancelled."""
        with transaction(self._connection, self._path):
            for draft in drafts:
                self._connection.execute(
                    "DELETE FROM drafts WHERE session = ? AND number = ? AND finish = 'cancelled'",
                    (session, draft.number),
                )
                self._insert_draft(session, draft)

    def _insert_draft(self, session: int, draft: NewDraft) -> None:
        self._connection.execute(
            "INSERT INTO drafts (session, number, source_sha256, seed, temperature, tokens,"
            " seconds, finish, duplicate_of, round, parent, author, changes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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

    def set_verdict(
        self, session: int, number: int, verdict: Mapping[str, Any], *, ratio: float | None
    ) -> None:
        """Store a draft's verdict (`kmint.verdict/1`) and its ratio to the fastest baseline.

        They replace an earlier verdict.
        """
        with transaction(self._connection, self._path):
            self._connection.execute(
                "UPDATE drafts SET outcome = ?, ratio = ?, verdict = ?"
                " WHERE session = ? AND number = ?",
                (verdict["verdict"], ratio, compact(verdict), session, number),
            )

    def finish(self, session: int, state: State) -> None:
        """Mark a session as finished."""
        with transaction(self._connection, self._path):
            self._connection.execute(
                "UPDATE sessions SET finished = ?, state = ? WHERE id = ?", (now(), state, session)
            )

    def summaries(self, *, op: str | None = None, limit: int | None = None) -> tuple[Summary, ...]:
        """The sessions, newest first."""
        query = (
            "SELECT s.id, s.started, s.state, s.process, s.op, s.model,"
            " CAST(s.wanted AS INTEGER) AS wanted,"
            " count(d.number) FILTER (WHERE d.finish <> 'cancelled' AND d.author = 'smith')"
            " AS drafted,"
            f" coalesce(sum(coalesce(d.outcome, o.outcome) IN {_PASSED_SQL})"
            " FILTER (WHERE d.author = 'smith'), 0) AS passed,"
            " max(d.ratio) FILTER (WHERE typeof(d.ratio) = 'real') AS ratio,"
            " (SELECT outcome FROM drafts WHERE session = s.id AND outcome IS NOT NULL"
            f" ORDER BY {_RANK_SQL} LIMIT 1) AS best"
            " FROM (SELECT * FROM sessions WHERE :op IS NULL OR op = :op"
            " ORDER BY id DESC LIMIT :limit) AS s"
            " LEFT JOIN drafts AS d ON d.session = s.id"
            " LEFT JOIN drafts AS o ON o.session = d.session AND o.number = d.duplicate_of"
            " GROUP BY s.id ORDER BY s.id DESC"
        )
        with translated(self._path):
            rows = self._connection.execute(
                query, {"op": op, "limit": -1 if limit is None else limit}
            ).fetchall()
        return tuple(Summary(**_with_state(row)) for row in rows)

    def session(self, number: int, *, whole: bool = True) -> Session:
        """One session. Raises UsageError if it does not exist, Damaged if its data changed.

        Without `whole`, a note replaces a lost prompt, so that the drafts can still be read.
        """
        with translated(self._path):
            row = self._connection.execute(
                "SELECT * FROM sessions WHERE id = ?", (number,)
            ).fetchone()
        if row is None:
            raise UsageError(
                f"the history holds no session {number}", fix="`kmint history` lists them"
            )
        name = f"session {number}"
        values = {
            key: value
            for key, value in _with_state(row).items()
            if not key.endswith("_sha256") or key == "model_sha256"
        }
        for part in ("system", "user"):
            digest = row[f"{part}_sha256"]
            try:
                values[part] = self._text(digest, f"the {part} of {name}")
            except EnvironmentUnfit:
                if whole:
                    raise
                values[part] = f"[lost through damage; its sha256 was {digest}]"
        values |= {part: self._document(row, part, name) for part in ("settings", "environment")}
        return self._typed(Session, values, name, str(number))

    def session_numbers(self) -> tuple[int, ...]:
        """The ids of all sessions, also of sessions whose own row is lost."""
        query = "SELECT id FROM sessions UNION SELECT session FROM drafts ORDER BY 1"
        with translated(self._path):
            return tuple(row[0] for row in self._connection.execute(query))

    def readable_sessions(self) -> Readable:
        """The ids of the sessions that a damaged file may still hold."""
        try:
            return Readable(self.session_numbers())
        except KmintError as error:
            query = "SELECT id FROM sessions ORDER BY id"
            return between_ends(self._connection, query, (), error.message)

    def draft_numbers(self, session: int) -> tuple[int, ...]:
        """The numbers of a session's drafts, also of drafts whose text is lost."""
        with translated(self._path):
            rows = self._connection.execute(_DRAFT_NUMBERS, (session,)).fetchall()
        return tuple(row["number"] for row in rows)

    def readable_drafts(self, session: int) -> Readable:
        """The numbers of a session's drafts that a damaged file may still hold."""
        try:
            return Readable(self.draft_numbers(session))
        except KmintError as error:
            return between_ends(self._connection, _DRAFT_NUMBERS, (session,), error.message)

    def drafts(self, session: int) -> tuple[Draft, ...]:
        """The drafts of a session, ordered by number."""
        return self._drafts("d.session = ?", (session,))

    def draft(self, session: int, number: int) -> Draft:
        """One draft. Raises UsageError if it does not exist, Damaged if its data changed."""
        found = self._drafts("d.session = ? AND d.number = ?", (session, number))
        if not found:
            raise UsageError(
                f"the history holds no draft {session}.{number}",
                fix=f"`kmint history show {session}` lists the session's drafts",
            )
        return found[0]

    def _drafts(self, condition: str, values: tuple[int, ...]) -> tuple[Draft, ...]:
        query = (
            "SELECT d.*, t.content AS source FROM drafts AS d"
            " LEFT JOIN texts AS t ON t.sha256 = d.source_sha256"
            f" WHERE {condition} ORDER BY d.number"
        )
        with translated(self._path):
            rows = self._connection.execute(query, values).fetchall()
        return tuple(self._draft(row) for row in rows)

    def _draft(self, row: sqlite3.Row) -> Draft:
        identity = draft_id(row["session"], row["number"])
        name = f"draft {identity}"
        source = row["source"]
        if not isinstance(source, str) or _digest(source) != row["source_sha256"]:
            raise damaged(self._path, f"the source of {name} changed since it was stored")
        verdict = self._document(row, "verdict", name) if row["verdict"] is not None else None
        draft = self._typed(Draft, {**row, "verdict": verdict}, name, identity)
        if verdict is not None:
            self._typed(VerdictDocument, verdict, f"the verdict of {name}", identity)
        return draft

    def _typed(self, kind: type[Kind], values: Mapping[str, Any], what: str, identity: str) -> Kind:
        """The values as a record. Raises Damaged.

        SQLite stores any type in a column, and an earlier kmint imported any line of a file.
        """
        try:
            return made(kind, dict(values), what)
        except Mistyped as error:
            fix = f"`kmint history rm {identity}` removes it and nothing else"
            raise Damaged(f"{self._path}: {error}", fix=fix) from error

    def _text(self, digest: str, name: str) -> str:
        """The text of a digest. Raises Damaged: SQLite itself notices only damage to structures."""
        with translated(self._path):
            row = self._connection.execute(
                "SELECT content FROM texts WHERE sha256 = ?", (digest,)
            ).fetchone()
        content = row["content"] if row else None
        if not isinstance(content, str) or _digest(content) != digest:
            raise damaged(self._path, f"{name} changed since it was stored")
        return content

    def _document(self, row: sqlite3.Row, name: str, what: str) -> dict[str, Any]:
        try:
            found = parse_json(row[name])
        except (BadDocument, TypeError):
            found = None
        if not isinstance(found, dict):
            raise damaged(self._path, f"the {name} of {what} changed since it was stored")
        return found

    def _keep(self, text: str) -> str:
        content = text.encode("utf-8", "replace").decode("utf-8")
        digest = _digest(content)
        self._connection.execute(
            "INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)", (digest, content)
        )
        return digest


def _with_state(row: sqlite3.Row) -> dict[str, Any]:
    """The row without its process; a running session is cut short if that process is gone."""
    values: dict[str, Any] = {key: row[key] for key in row.keys()}
    process = values.pop("process")
    if values["state"] == "running" and is_gone(process):
        values["state"] = "cut short"
    return values


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def now() -> str:
    """The time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def own_process() -> str:
    """This process as host, process id and start in clock ticks; unique until the next boot."""
    return f"{os.uname().nodename} {os.getpid()} {_process_start(os.getpid())}"


def is_gone(process: str) -> bool:
    """True if that process has ended; False also for a process on another machine."""
    parts = process.split()
    if len(parts) != 3 or parts[0] != os.uname().nodename or not parts[1].isdigit():
        return False
    return _process_start(int(parts[1])) != parts[2]


def _process_start(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "-"
    # The name in parentheses may hold any character; the start time is the 20th field after it.
    return stat.rpartition(")")[2].split()[19]


@dataclass(frozen=True)
class Readable:
    """Keys to read, and the error that kept SQLite from listing all of them.

    The file may hold no row for a key in `guessed`.
    """

    numbers: tuple[int, ...]
    error: str | None = None
    guessed: frozenset[int] = frozenset()


def between_ends(
    connection: sqlite3.Connection, query: str, values: tuple[int, ...], error: str
) -> Readable:
    """The keys of a query that ends with its order, read from both ends and guessed in between."""
    first, last = (
        _read_numbers(connection, query, values),
        _read_numbers(connection, f"{query} DESC", values),
    )
    gap = range((first or [0])[-1] + 1, last[-1] if last else 0)
    return Readable(tuple(sorted({*first, *gap, *last})), error, frozenset(gap))


def _read_numbers(connection: sqlite3.Connection, query: str, values: tuple[int, ...]) -> list[int]:
    found: list[int] = []
    try:
        for row in connection.execute(query, values):
            found.append(row[0])
    except sqlite3.DatabaseError:
        pass
    return found
