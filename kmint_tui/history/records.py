"""The history's records as frozen dataclasses, and the text form of their ids.

A session is one `kmint mint`; its id is a number ("12"). A draft of it is "12.3".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from kmint_tui.errors import UsageError

State = Literal["running", "done", "stopped", "failed", "cut short"]
"""State of a session. "cut short" is never stored: it stands for "running" without its process."""
Finish = Literal["stop", "length", "cancelled"]
Author = Literal["smith", "template", "tuner"]
"""Author of a draft: the model, kmint's template, or the tuner, which changed a model's draft."""


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """A session that begins. `settings` and `environment` hold JSON values."""

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


@dataclass(frozen=True, kw_only=True)
class Session(NewSession):
    """A stored session. Times are UTC, ISO 8601; `finished` is None if it was cut short."""

    id: int
    started: str
    finished: str | None
    state: State

    def to_json(self) -> dict[str, Any]:
        """All fields, for documents."""
        return _ordered(self, ("id", "started", "finished", "state"))


def tuned_by(author: Author, changes: str, tuned: str) -> tuple[Author, str]:
    """The author and changes of a kernel whose launch constants the tuner changed.

    A kernel of the template stays one, with more changes. A smith's becomes one of the tuner.
    """
    words = ", ".join(filter(None, (changes, tuned)))
    return "template" if author == "template" else "tuner", words


@dataclass(frozen=True, kw_only=True)
class NewDraft:
    """A finished draft before its verdict.

    `round` 0 is the first; a repair in round n comes from the draft `parent` of round n-1. A tuned
    kernel's `parent` is the draft whose launch constants were swept; `changes` names the constants
    that differ.
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

    @classmethod
    def undrafted(
        cls,
        number: int,
        source: str,
        *,
        author: Author = "smith",
        parent: int | None = None,
        changes: str = "",
    ) -> Self:
        """A finished kernel that no smith drafted here: it has no seed, tokens or seconds."""
        return cls(
            number=number,
            source=source,
            seed=0,
            temperature=0.0,
            tokens=0,
            seconds=0.0,
            finish="stop",
            parent=parent,
            author=author,
            changes=changes,
        )


@dataclass(frozen=True, kw_only=True)
class Draft(NewDraft):
    """A stored draft; `verdict` is its `kmint.verdict/1` document, None before a verdict."""

    session: int
    source_sha256: str
    duplicate_of: int | None
    outcome: str | None
    ratio: float | None
    verdict: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """All fields, for documents."""
        return _ordered(self, _DRAFT_ORDER)

    @property
    def id(self) -> str:
        """The id for `kmint history show` and `kmint save`."""
        return draft_id(self.session, self.number)

    def maker(self, model: str) -> str:
        """The author in words: the session's `model`, kmint's template, or the tuner."""
        if self.author == "template":
            return f"kmint's template ({self.changes})" if self.changes else "kmint's template"
        if self.author == "smith" or self.parent is None:
            return model
        parent = draft_id(self.session, self.parent)
        return f"the tuner ({self.changes}), from draft {parent} of {model}"


_DRAFT_ORDER = (
    "session number source source_sha256 seed temperature tokens seconds finish"
    " duplicate_of outcome ratio verdict"
).split()


def _ordered(record: Session | Draft, first: Sequence[str]) -> dict[str, Any]:
    values = asdict(record)
    return {name: values[name] for name in dict.fromkeys((*first, *values))}


@dataclass(frozen=True)
class Summary:
    """One line of the list of sessions.

    `drafted` counts the smith's drafts that were not cancelled, `passed` the correct ones with
    duplicates. `best` and `ratio` cover all kernels, also the template's.
    """

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
    """The session or draft of an id. Raises UsageError."""
    session, dot, number = text.partition(".")
    if _is_number(session) and (_is_number(number) if dot else True):
        return Reference(int(session), int(number) if dot else None)
    raise UsageError(
        f"{text!r} is not an id of the history",
        fix="a session is a number such as 12, a draft is 12.3; `kmint history` lists them",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
