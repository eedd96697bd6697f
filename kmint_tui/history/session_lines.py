"""Reads lines of `kmint.session/1` as sessions and drafts.

Each value has its type and stays within bounds, or the line is refused with a reason. A file may
come from any machine and any author. kmint can list, show, save and export every session that it
accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import IO, Any

from kmint_tui.documents import BadDocument, parse_json
from kmint_tui.history.records import Draft, Session
from kmint_tui.history.verdicts import verdict_document
from kmint_tui.typed import Mistyped, made

SCHEMA = "kmint.session/1"
MAX_LINE_BYTES = 32 << 20
"""Bytes of one session; about ten times the largest session that kmint can mint."""
MOST_DRAFTS = 10_000
LONGEST_TEXT, LONGEST_NAME, LONGEST_TIME = 4 << 20, 4096, 40
"""Characters of a prompt or a source; of a name, a path or a digest; and of a time."""
MOST_NUMBER = 1_000_000
"""Largest number that an imported session keeps; the next new session gets a larger one."""

_LONGEST = {
    **dict.fromkeys(
        ("op", "model", "model_file", "model_sha256", "outcome", "changes"), LONGEST_NAME
    ),
    **dict.fromkeys(("system", "user", "source"), LONGEST_TEXT),
}
_NOT_NEGATIVE = frozenset(
    {"wanted", "number", "tokens", "seconds", "duplicate_of", "ratio", "round", "parent"}
)


@dataclass(frozen=True)
class SessionLine:
    """A session from a file. `number` is the number that it had there, None if it is not usable."""

    number: int | None
    session: Session
    drafts: tuple[Draft, ...]


@dataclass(frozen=True)
class BadLine:
    """A line, counted from 1, that is no session of a history, with the reason."""

    number: int
    reason: str


def read_lines(stream: IO[bytes]) -> Iterator[SessionLine | BadLine]:
    """The sessions of a stream in order, one line at a time. Empty lines are skipped."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            _pass_over_rest(stream, line)
            yield BadLine(number, f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
        elif line.strip():
            yield _read(number, line)


def _pass_over_rest(stream: IO[bytes], line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(1 << 20)


def _read(number: int, line: bytes) -> SessionLine | BadLine:
    try:
        return parse_line(line)
    except (BadDocument, Mistyped) as error:
        return BadLine(number, str(error))


def parse_line(line: bytes) -> SessionLine:
    """The session of a line. Raises BadDocument or Mistyped with one line of reason."""
    document = parse_json(line, most_bytes=MAX_LINE_BYTES)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise Mistyped(f"it is not of the schema {SCHEMA}")
    wish = document.get("id")
    number = (
        wish
        if isinstance(wish, int) and not isinstance(wish, bool) and 0 < wish <= MOST_NUMBER
        else None
    )
    session = made(Session, {**document, "id": number or 0}, "the session")
    _check_bounds(session, "the session")
    for time in (session.started, session.finished):
        _check_time(time)
    return SessionLine(number, session, tuple(_drafts(document.get("drafts"))))


def _check_time(time: str | None) -> None:
    try:
        if time is not None and (len(time) > LONGEST_TIME or not datetime.fromisoformat(time)):
            raise ValueError
    except ValueError:
        raise Mistyped(f"{time!r:.60} is no time in ISO 8601") from None


def _drafts(listed: Any) -> Iterator[Draft]:
    if not isinstance(listed, list) or len(listed) > MOST_DRAFTS:
        raise Mistyped(f"the session has no list of at most {MOST_DRAFTS:,} drafts")
    numbers: set[int] = set()
    for place, item in enumerate(listed):
        where = f"drafts[{place}]"
        # The import finds the session and the digest of the text itself.
        draft = made(
            Draft,
            {**item, "session": 0, "source_sha256": ""} if isinstance(item, dict) else item,
            where,
        )
        _check_bounds(draft, where)
        if draft.verdict is not None:
            verdict_document(draft.verdict, f"{where}.verdict")
        if draft.number in numbers:
            raise Mistyped(f"two drafts have the number {draft.number}")
        numbers.add(draft.number)
        yield draft


def _check_bounds(record: Session | Draft, where: str) -> None:
    for field in fields(record):
        value = getattr(record, field.name)
        longest = _LONGEST.get(field.name)
        if longest is not None and len(value or "") > longest:
            raise Mistyped(f"{where}.{field.name} is longer than {longest:,} characters")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise Mistyped(f"{where}.{field.name} does not fit 64 bits")
        if field.name in _NOT_NEGATIVE and value is not None and value < 0:
            raise Mistyped(f"{where}.{field.name} is negative")
