"""The history as JSON lines, one session a line (`kmint.session/1`), and back; and taking sessions and drafts out.

What cannot be read any more, because a page of the file is damaged, is reported and the rest is exported. Importing the same
lines twice changes nothing: a session is known by its start, op, model and seed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError
from kmint_tui.history.database import Damaged, connect, transaction
from kmint_tui.history.reading import for_reading
from kmint_tui.history.records import Draft, Reference, draft_id
from kmint_tui.history.salvage import salvage
from kmint_tui.history.store import History

SCHEMA = "kmint.session/1"

_UNUSED_TEXTS = (
    "DELETE FROM texts WHERE sha256 NOT IN (SELECT source_sha256 FROM drafts UNION SELECT system_sha256 FROM sessions"
    " UNION SELECT user_sha256 FROM sessions UNION SELECT source_sha256 FROM reigns)"
)


class BadLine(UsageError):
    """A line that is no session of a history; nothing of it was taken in."""

    title = "not a history"


@dataclass(frozen=True)
class Damage:
    """A session, or one draft of it, that cannot be read, and why; `session` is None for what is said of the whole file."""

    session: int | None
    reason: str
    draft: int | None = None


@dataclass(frozen=True)
class Imported:
    """How many sessions and drafts were taken in, and how many sessions were there already."""

    sessions: int
    drafts: int
    known: int


def export(path: Path) -> Iterator[dict[str, Any] | Damage]:
    """Every session with its drafts, the oldest first.

    Damage to the file is said once, before the first session it concerns; what SQLite then does not give any more is read off
    the undamaged pages.
    """
    with ExitStack() as opened:
        second: History | None = None
        try:
            history = opened.enter_context(for_reading(path, History))
        except Damaged as error:
            yield Damage(None, error.message)
            history = second = _salvaged(path, opened)
        try:
            ids = history.session_numbers()
        except EnvironmentUnfit as error:
            yield Damage(None, error.message)
            second = _salvaged(path, opened)
            ids = second.session_numbers()
        for number in ids:
            document, lost = _read(history, number)
            if lost and second is None:
                yield Damage(None, lost[0].reason)
                second = _salvaged(path, opened)
            if lost and second is not None:
                other, still_lost = _read(second, number)
                if other is not None and (document is None or len(still_lost) < len(lost)):
                    document, lost = other, still_lost
            yield from lost
            if document is not None:
                yield document


def _read(history: History, number: int) -> tuple[dict[str, Any] | None, list[Damage]]:
    """A session's document, None if it cannot be read, and what is missing of it."""
    lost: list[Damage] = []
    try:
        try:
            session = history.session(number)
        except EnvironmentUnfit as error:
            lost.append(Damage(number, error.message))
            session = history.session(number, whole=False)
        found = [_draft(history, number, draft) for draft in history.draft_numbers(number)]
    except KmintError as error:
        return None, lost or [Damage(number, error.message)]
    drafts = [asdict(draft) for draft in found if isinstance(draft, Draft)]
    return {"schema": SCHEMA, **asdict(session), "drafts": drafts}, lost + [draft for draft in found if isinstance(draft, Damage)]


def _draft(history: History, session: int, number: int) -> Draft | Damage:
    try:
        return history.draft(session, number)
    except KmintError as error:
        return Damage(session, error.message, number)


def _salvaged(path: Path, opened: ExitStack) -> History:
    file = Path(opened.enter_context(tempfile.TemporaryDirectory())) / path.name
    salvage(path, file)
    return opened.enter_context(History(file))


def take_in(path: Path, lines: Iterable[str]) -> Imported:
    """Add exported sessions, each whole or not at all. Raises BadLine at the first line that is none; those before it stay."""
    sessions = drafts = known = 0
    connection = connect(path)
    try:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            document = _parse(line, number)
            with transaction(connection, path):
                if _is_known(connection, document):
                    known += 1
                    continue
                try:
                    drafts += _insert(connection, document)
                except (KeyError, TypeError, AttributeError, sqlite3.IntegrityError, sqlite3.ProgrammingError) as error:
                    raise BadLine(f"line {number} lacks something or holds what cannot be: {error}") from error
                sessions += 1
    finally:
        connection.close()
    return Imported(sessions, drafts, known)


def remove(path: Path, *references: Reference) -> None:
    """Take sessions and drafts out, and the texts nothing else uses; all of them or none. Crowns stay.

    Raises UsageError, naming the first that is not there or that others are duplicates of.
    """
    connection = connect(path)
    try:
        with transaction(connection, path):
            # Drafts before their session, and duplicates, which come later, before the draft they repeat.
            for reference in sorted(set(references), key=lambda one: (one.number is None, -(one.number or 0))):
                _delete(connection, reference)
            connection.execute(_UNUSED_TEXTS)
    finally:
        connection.close()


def _delete(connection: sqlite3.Connection, reference: Reference) -> None:
    if reference.number is None:
        gone = connection.execute("DELETE FROM sessions WHERE id = ?", (reference.session,)).rowcount
    else:
        values = (reference.session, reference.number)
        copies = connection.execute("SELECT number FROM drafts WHERE session = ? AND duplicate_of = ?", values).fetchall()
        if copies:
            named = ", ".join(draft_id(reference.session, number) for (number,) in copies)
            raise UsageError(f"{_name(reference)} is also the kernel of {named}", fix=f"delete {named} too, or the whole session")
        gone = connection.execute("DELETE FROM drafts WHERE session = ? AND number = ?", values).rowcount
    if not gone:
        raise UsageError(f"the history holds no {_name(reference)}; nothing was removed", fix="`kmint history` lists what it holds")


def _name(reference: Reference) -> str:
    if reference.number is None:
        return f"session {reference.session}"
    return f"draft {draft_id(reference.session, reference.number)}"


def _parse(line: str, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise BadLine(f"line {number} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadLine(f"line {number} is not of the schema {SCHEMA}")
    return document


def _is_known(connection: sqlite3.Connection, document: Mapping[str, Any]) -> bool:
    values = [document.get(name) for name in ("started", "op", "model_sha256", "seed")]
    query = "SELECT 1 FROM sessions WHERE started = ? AND op = ? AND model_sha256 = ? AND seed = ?"
    return connection.execute(query, values).fetchone() is not None


def _insert(connection: sqlite3.Connection, document: Mapping[str, Any]) -> int:
    plain = ("started", "finished", "state", "op", "model", "model_file", "model_sha256", "seed", "wanted")
    row = {name: document[name] for name in plain}
    row |= {name: compact(document[name]) for name in ("settings", "environment")}
    row |= {f"{name}_sha256": _keep(connection, document[name]) for name in ("system", "user")}
    # Whatever ran it runs no more, and not here.
    row |= {"process": "", "state": "stopped" if row["state"] == "running" else row["state"]}
    session = connection.execute(f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()]).lastrowid
    for draft in document["drafts"]:
        names = ("number", "seed", "temperature", "tokens", "seconds", "finish", "duplicate_of", "outcome", "ratio")
        values = {name: draft[name] for name in names}
        # Sessions exported before drafts had rounds do not say these.
        values |= {name: draft[name] for name in ("round", "parent", "author", "changes") if name in draft}
        verdict = compact(draft["verdict"]) if draft["verdict"] is not None else None
        values |= {"session": session, "source_sha256": _keep(connection, draft["source"]), "verdict": verdict}
        connection.execute(f"INSERT INTO drafts ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()])
    return len(document["drafts"])


def _keep(connection: sqlite3.Connection, text: str) -> str:
    content = text.encode("utf-8", "replace")
    digest = hashlib.sha256(content).hexdigest()
    connection.execute("INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)", (digest, content.decode("utf-8")))
    return digest
