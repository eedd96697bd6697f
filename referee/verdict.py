"""The verdict on one candidate as data, and its JSON form `kmint.verdict/1`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = "kmint.verdict/1"

Stage = Literal["screen", "trace", "compile", "correct", "honest", "timing", "done"]
Outcome = Literal["win", "tie", "loss", "unsure", "correct", "rejected", "error"]
Mode = Literal["replay", "interpret"]
Status = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Rejection:
    """A rejection: the guard's stable name, and one line that says what to change."""

    stage: Stage
    guard: str
    reason: str


@dataclass(frozen=True)
class Check:
    """The report of one guard. One that did not run is "skipped", `detail` says why."""

    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class CellResult:
    """The outcome at one cell.

    `error` is the worst element's |candidate - float64|, and `budget` its tolerance or a sufficient
    part of it.
    """

    name: str
    role: str
    status: Status
    error: float | None = None
    budget: float | None = None
    detail: str = ""
    guard: str = ""
    """The guard that failed at a capability case."""


@dataclass(frozen=True)
class HostCode:
    """Host code that the verdict does not vouch for: its line, its text, and the reason."""

    line: int | None
    what: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """A required case at which the launcher raises, with its words."""

    case: str
    words: str


@dataclass(frozen=True)
class Holds:
    """The domain of a verdict that does not hold everywhere: in words, the refused cases, and the
    circumstances in which `run` differs or raises. `changed` are inputs that it changes in place.
    """

    words: str
    refused: tuple[Refused, ...] = ()
    circumstances: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on one candidate. At stage "done" every required cell passed. An "unsure" verdict
    of an earlier stage ran nothing.

    It vouches for launches. A kernel with host code outside the allow-list (`host_code`) holds no
    crown and is not saved as it is.
    """

    op: str
    verdict: Outcome
    stage: Stage
    reason: str
    guard: str | None
    mode: Mode
    checks: tuple[Check, ...] = ()
    cells: tuple[CellResult, ...] = ()
    timing: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    host_code: tuple[HostCode, ...] = ()
    holds: Holds | None = None

    @property
    def passed(self) -> bool:
        """Whether the kernel is known to be correct and honest; false below "correct"."""
        return self.survived and self.stage == "done"

    @property
    def survived(self) -> bool:
        """Whether nothing rejected the candidate up to the requested level."""
        return self.verdict not in ("rejected", "error")

    def to_json(self) -> dict[str, Any]:
        """The `kmint.verdict/1` document (plain dicts, lists and scalars)."""
        return {"schema": SCHEMA, **asdict(self)}
