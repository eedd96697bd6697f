"""Which sessions to list, and in which order."""

from __future__ import annotations

from collections.abc import Iterable

from kmint_tui.history.records import Summary

SORTS = ("newest", "operation", "correct", "ratio", "state")


def listed(sessions: Iterable[Summary], wanted: str, sort: str) -> list[Summary]:
    """The sessions that hold all the words, sorted; what is equal stays newest first."""
    words = wanted.lower().split()
    found = [session for session in sessions if all(word in _text(session) for word in words)]
    match sort:
        case "operation":
            return sorted(found, key=lambda session: session.op)
        case "correct":
            return sorted(found, key=lambda session: -session.passed)
        case "ratio":
            return sorted(found, key=lambda session: -(session.ratio or 0.0))
        case "state":
            return sorted(found, key=lambda session: session.state)
        case _:
            return sorted(found, key=lambda session: -session.id)


def _text(session: Summary) -> str:
    return f"{session.id} {session.started} {session.op} {session.model} {session.state} {session.best or ''}".lower()
