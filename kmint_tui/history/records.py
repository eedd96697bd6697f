"""What the history holds, as frozen dataclasses, and how its ids are written.

A session is one `kmint mint`; its id is a number ("12"). A draft of it is "12.3".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kmint_tui.errors import UsageError

State = Literal["running", "done", "stopped", "failed", "cut short"]
"""How a session stands. "cut short" is never stored: it is what a running one is when its process is gone."""
Finish = Literal["stop", "length", "cancelled"]
Author = Literal["smith", "tuner"]
"""Who made a draft: the model, or the sweep over a draft's launch constants."""


@dataclass(frozen=True)
class NewSession:
    """What is known when a session begins. `settings` and `environment` hold JSON values."""

    op: str
    model: str
    model_file: str
    model_sha256: str
    system: str
    user: str
    seed: int
    wanted: int
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class NewDraft:
    """One finished draft, before or without its verdict.

    `round` 0 is the first; a repair in round n was made from the draft `parent` of round n-1. A tuned kernel's `parent` is the
    draft whose launch constants were swept, and `changes` says which of them differ.
    """

    number: int
    source: str
    seed: int
    temperature: float
    tokens: int
    seconds: float
    finish: Finish
    duplicate_of: int | None = None
    round: int = 0
    parent: int | None = None
    author: Author = "smith"
    changes: str = ""


@dataclass(frozen=True)
class Session:
    """One session as it was stored. Times are UTC, ISO 8601; `finished` is None if it was cut short."""

    id: int
    started: str
    finished: str | None
    state: State
    op: str
    model: str
    model_file: str
    model_sha256: str
    system: str
    user: str
    seed: int
    wanted: int
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Draft:
    """One draft as it was stored; `verdict` is its `kmint.verdict/1` document, None if it was not judged."""

    session: int
    number: int
    source: str
    source_sha256: str
    seed: int
    temperature: float
    tokens: int
    seconds: float
    finish: Finish
    duplicate_of: int | None
    outcome: str | None
    ratio: float | None
    verdict: Mapping[str, Any] | None
    round: int = 0
    parent: int | None = None
    author: Author = "smith"
    changes: str = ""

    @property
    def id(self) -> str:
        """The id under which `kmint history show` and `kmint save` know it."""
        return draft_id(self.session, self.number)

    def maker(self, model: str) -> str:
        """Who to name for it: the session's model, or the tuner that changed constants of one of the model's drafts."""
        if self.author == "smith" or self.parent is None:
            return model
        return f"the tuner ({self.changes}), from draft {draft_id(self.session, self.parent)} of {model}"


@dataclass(frozen=True)
class Summary:
    """One line of the list of sessions. `drafted` counts the drafts that were not stopped while they were written, `passed` the correct
    ones, duplicates included; `ratio` is the best one."""

    id: int
    started: str
    state: State
    op: str
    model: str
    wanted: int
    drafted: int
    passed: int
    best: str | None
    ratio: float | None


@dataclass(frozen=True)
class Reference:
    """A session, or one draft of it."""

    session: int
    number: int | None


def draft_id(session: int, number: int) -> str:
    """The id of a draft."""
    return f"{session}.{number}"


def parse_id(text: str) -> Reference:
    """The session or draft that an id names. Raises UsageError."""
    session, dot, number = text.partition(".")
    if _is_number(session) and (_is_number(number) if dot else True):
        return Reference(int(session), int(number) if dot else None)
    raise UsageError(
        f"{text!r} is not an id of the history", fix="a session is a number such as 12, a draft is 12.3; `kmint history` lists them"
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
