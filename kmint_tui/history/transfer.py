"""The history as JSON lines, one session a line (`kmint.session/1`), and back; and removal.

An export names every record that a damaged file no longer gives, and writes the rest. A second
import of the same lines changes nothing: a session is known by its start, op, model and seed.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError
from kmint_tui.history.backups import way_out
from kmint_tui.history.database import Damaged, connect, transaction
from kmint_tui.history.reading import for_reading, read_history
from kmint_tui.history.records import Reference, Session, draft_id
from kmint_tui.history.session_lines import SCHEMA, BadLine, SessionLine, read_lines
from kmint_tui.history.store import History

MOST_NAMED, MOST_LEFT_OUT = 20, 100_000
"""Number of bad lines that an import names, and number after which it ends."""

_UNUSED_TEXTS = (
    "DELETE FROM texts WHERE sha256 NOT IN (SELECT source_sha256 FROM drafts UNION SELECT "
    "system_sha256 FROM sessions"
    " UNION SELECT user_sha256 FROM sessions UNION SELECT source_sha256 FROM reigns)"
)


@dataclass(frozen=True)
class Damage:
    """A session, or one of its drafts, that cannot be read, with the reason.

    `session` is None for damage to the whole file.
    """

    session: int | None
    reason: str
    draft: int | None = None


@dataclass(frozen=True)
class Imported:
    """Numbers of imported sessions and drafts, of sessions that were known, and of bad lines.

    `named` has the first bad lines, with their reasons.
    """

    sessions: int
    drafts: int
    known: int
    left_out: int
    named: tuple[BadLine, ...]


def export(path: Path) -> Iterator[dict[str, Any] | Damage]:
    """Every session with its drafts, the oldest first.

    Damage to the file comes once, before the first session that it concerns, and names the commands
    that help. Raises Damaged when SQLite cannot open the file at all.
    """
    with ExitStack() as opened:
        named = False
        try:
            history = opened.enter_context(read_history(path))
        except Damaged as error:
            yield _of_file(path, error.message)
            named = True
            history = opened.enter_context(for_reading(path, _short_file))
        ids = history.readable_sessions()
        if ids.error and not named:
            yield _of_file(path, ids.error)
            named = True
        for number in ids.numbers:
            document, lost = _read(history, number, guessed=number in ids.guessed)
            if lost and not named:
                yield _of_file(path, lost[0].reason)
                named = True
            yield from lost
            if document is not None:
                yield document


def _short_file(path: Path) -> History:
    return History(path, damaged=True)


def _of_file(path: Path, reason: str) -> Damage:
    return Damage(None, f"{reason}; {way_out(path)}")


def _read(
    history: History, number: int, *, guessed: bool
) -> tuple[dict[str, Any] | None, list[Damage]]:
    """A session's document, None if it cannot be read, and the damage to it.

    A `guessed` number may belong to no session.
    """
    lost: list[Damage] = []
    try:
        try:
            session = history.session(number)
        except EnvironmentUnfit as error:
            lost.append(Damage(number, error.message))
            session = history.session(number, whole=False)
    except UsageError as error:
        return None, [] if guessed else [Damage(number, error.message)]
    except KmintError as error:
        return None, lost or [Damage(number, error.message)]
    numbers = history.readable_drafts(number)
    if numbers.error:
        lost.append(Damage(number, f"not all drafts can be read: {numbers.error}"))
    drafts = []
    for draft in numbers.numbers:
        try:
            drafts.append(history.draft(number, draft).to_json())
        except UsageError:
            # Between the readable ends of a damaged table not every number has a draft.
            continue
        except KmintError as error:
            lost.append(Damage(number, error.message, draft))
    return {"schema": SCHEMA, **session.to_json(), "drafts": drafts}, lost


def take_in(path: Path, stream: IO[bytes]) -> Imported:
    """Add exported sessions, each whole or not at all. Count and name the lines that are bad.

    Raises UsageError after too many bad lines, because the file is then no export. The sessions
    that were added before stay.
    """
    sessions = drafts = known = left_out = 0
    named: list[BadLine] = []
    connection = connect(path)
    try:
        for line in read_lines(stream):
            if isinstance(line, BadLine):
                left_out += 1
                named += [line] if left_out <= MOST_NAMED else []
                if left_out > MOST_LEFT_OUT:
                    raise UsageError(
                        f"more than {MOST_LEFT_OUT:,} lines are no session;"
                        f" line {named[0].number}: {named[0].reason}",
                        fix=f"the rest was not read; {sessions} sessions were taken in before",
                        title="not a history",
                    )
                continue
            with transaction(connection, path):
                if _is_known(connection, line.session):
                    known += 1
                    continue
                _insert(connection, line)
            sessions, drafts = sessions + 1, drafts + len(line.drafts)
    finally:
        connection.close()
    return Imported(sessions, drafts, known, left_out, tuple(named))


def remove(path: Path, *references: Reference) -> None:
    """Remove sessions and drafts, all or none, and the texts that nothing else uses. Crowns stay.

    Raises UsageError that names the first one that does not exist or that has duplicates.
    """
    connection = connect(path)
    try:
        with transaction(connection, path):
            # Drafts go before their session, and duplicates before the draft that they repeat.
            for reference in sorted(
                set(references), key=lambda one: (one.number is None, -(one.number or 0))
            ):
                _delete(connection, reference)
            connection.execute(_UNUSED_TEXTS)
    finally:
        connection.close()


def _delete(connection: sqlite3.Connection, reference: Reference) -> None:
    if reference.number is None:
        gone = connection.execute(
            "DELETE FROM sessions WHERE id = ?", (reference.session,)
        ).rowcount
    else:
        values = (reference.session, reference.number)
        copies = connection.execute(
            "SELECT number FROM drafts WHERE session = ? AND duplicate_of = ?", values
        ).fetchall()
        if copies:
            named = ", ".join(draft_id(reference.session, number) for (number,) in copies)
            raise UsageError(
                f"{_name(reference)} is also the kernel of {named}",
                fix=f"delete {named} too, or the whole session",
            )
        gone = connection.execute(
            "DELETE FROM drafts WHERE session = ? AND number = ?", values
        ).rowcount
    if not gone:
        raise UsageError(
            f"the history holds no {_name(reference)}; nothing was removed",
            fix="`kmint history` lists what it holds",
        )


def _name(reference: Reference) -> str:
    if reference.number is None:
        return f"session {reference.session}"
    return f"draft {draft_id(reference.session, reference.number)}"


def _is_known(connection: sqlite3.Connection, session: Session) -> bool:
    values = (session.started, session.op, session.model_sha256, session.seed)
    query = "SELECT 1 FROM sessions WHERE started = ? AND op = ? AND model_sha256 = ? AND seed = ?"
    return connection.execute(query, values).fetchone() is not None


def _insert(connection: sqlite3.Connection, line: SessionLine) -> None:
    session = line.session
    row = {
        name: getattr(session, name)
        for name in (
            "started",
            "finished",
            "op",
            "model",
            "model_file",
            "model_sha256",
            "seed",
            "wanted",
        )
    }
    row |= {name: compact(getattr(session, name)) for name in ("settings", "environment")}
    row |= {
        "system_sha256": _keep(connection, session.system),
        "user_sha256": _keep(connection, session.user),
    }
    # The process that ran the session was on another machine, or has ended.
    row |= {
        "process": "",
        "state": "stopped" if session.state in ("running", "cut short") else session.state,
    }
    digests = [_keep(connection, draft.source) for draft in line.drafts]
    row["id"] = line.number if _is_free(connection, line, digests) else None
    number = _add(connection, "sessions", row)
    for draft, digest in zip(line.drafts, digests, strict=True):
        values = {name: value for name, value in vars(draft).items() if name != "source"}
        verdict = compact(draft.verdict) if draft.verdict is not None else None
        _add(
            connection,
            "drafts",
            {**values, "session": number, "source_sha256": digest, "verdict": verdict},
        )


def _is_free(connection: sqlite3.Connection, line: SessionLine, digests: Sequence[str]) -> bool:
    """Whether the number of an imported session is free: no session and no other crown has it."""
    query = "SELECT 1 FROM sessions WHERE id = :id UNION SELECT 1 FROM drafts WHERE session = :id"
    if line.number is None or connection.execute(query, {"id": line.number}).fetchone():
        return False
    own = {
        draft_id(line.number, draft.number): digest
        for draft, digest in zip(line.drafts, digests, strict=True)
    }
    reigns = connection.execute(
        "SELECT draft, source_sha256 FROM reigns WHERE draft LIKE ?", (f"{line.number}.%",)
    )
    return all(own.get(draft) == digest for draft, digest in reigns)


def _add(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int | None:
    return connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
        [*row.values()],
    ).lastrowid


def _keep(connection: sqlite3.Connection, text: str) -> str:
    content = text.encode("utf-8", "replace")
    digest = hashlib.sha256(content).hexdigest()
    connection.execute(
        "INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)",
        (digest, content.decode("utf-8")),
    )
    return digest
