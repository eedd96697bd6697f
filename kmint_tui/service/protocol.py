"""The messages between a session and its clients: one JSON object a line, in UTF-8.

A client sends requests, each with an id that it chooses. The session first sends a greeting
(`kmint.service/1`), and then answers each request by events with the same id. The last event of a
request is `verdict`, `refused`, `cancelled` or `status`. A verdict is a `kmint.verdict/1` document.

Both sides limit the length of a line: a longer line, or one that is no request, ends the
connection.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from kmint_tui.documents import BadDocument, compact, parse_json
from kmint_tui.errors import (
    EnvironmentUnfit,
    KmintError,
    ModelError,
    StorageError,
    TimedOut,
    UsageError,
)
from kmint_tui.typed import Mistyped, made

SCHEMA: Literal["kmint.service/1"] = "kmint.service/1"
MOST_REQUEST_BYTES = 4 << 20
MOST_ANSWER_BYTES = 16 << 20
MOST_WAITING = 64
"""Requests of one client that are not answered yet."""

Level = Literal["screen", "compile", "correct", "full"]
Demand = Literal["all", "files", "any"]


class BadMessage(ValueError):
    """A line that is no message, with the reason."""


@dataclass(frozen=True)
class Reference:
    """A user's own reference, its file by an absolute path. It runs in the session's process."""

    file: str
    function: str | None = None
    inputs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request: a verdict on `source`, the end of another request (`of`), or the session's state
    or end.
    """

    id: int
    do: Literal["judge", "cancel", "status", "stop"]
    source: str = ""
    op: str | None = None
    reference: Reference | None = None
    level: Level = "full"
    target: str | None = None
    seed: int | None = None
    batch_invariant: bool = False
    strict: bool = False
    shapes: tuple[str, ...] = ()
    wide: bool = False
    of: int | None = None

    def to_line(self) -> bytes:
        """The request as one line."""
        return line({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The greeting of a session to every new client."""

    schema: Literal["kmint.service/1"]
    kmint_version: str
    pid: int
    prefix: str
    demand: Demand
    mode: str
    no_gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a session: numbers of waiting, running and finished requests."""

    pid: int
    clients: int
    waiting: int
    running: int
    done: int
    idle_seconds: float
    seconds: float


_KINDS: dict[str, type[KmintError]] = {
    kind.__name__: kind
    for kind in (UsageError, EnvironmentUnfit, ModelError, StorageError, TimedOut, KmintError)
}


def line(content: dict[str, Any]) -> bytes:
    """A message as its line."""
    return compact(content).encode("utf-8", "backslashreplace") + b"\n"


def parsed(text: bytes, *, most_bytes: int) -> dict[str, Any]:
    """The object on a line. Raises BadMessage."""
    try:
        found = parse_json(text, most_bytes=most_bytes)
    except BadDocument as error:
        raise BadMessage(str(error)) from None
    if not isinstance(found, dict):
        raise BadMessage("it is no JSON object")
    return found


def request(text: bytes) -> Request:
    """The request on a line. Raises BadMessage."""
    try:
        found = made(Request, parsed(text, most_bytes=MOST_REQUEST_BYTES), "the request")
    except Mistyped as error:
        raise BadMessage(str(error)) from None
    if found.do == "judge" and (found.op is None) == (found.reference is None):
        raise BadMessage("the request names an operation or a reference, and not both")
    if found.do == "cancel" and found.of is None:
        raise BadMessage("the request lacks 'of', the id of the request to cancel")
    return found


def refusal(error: KmintError) -> dict[str, Any]:
    """A refusal as the fields of an event."""
    kind = next(name for name, one in _KINDS.items() if isinstance(error, one))
    return {
        "event": "refused",
        "kind": kind,
        "title": error.title,
        "message": error.message,
        "fix": error.fix,
    }


def refused(event: dict[str, Any]) -> KmintError:
    """The refusal in an event."""
    kind = _KINDS.get(str(event.get("kind")), KmintError)
    return kind(
        str(event.get("message")),
        fix=str(event.get("fix", "")),
        title=str(event.get("title", "refused")),
    )
