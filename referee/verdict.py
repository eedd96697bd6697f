"""The verdict: what the referee says of one candidate, as data, and its JSON form `kmint.verdict/1`."""

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
    """Why a candidate fell: the guard's stable name, and one line that says what to change."""

    stage: Stage
    guard: str
    reason: str


@dataclass(frozen=True)
class Check:
    """One guard's report. Every guard reports, also those that did not run ("skipped", with the reason)."""

    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class CellResult:
    """The outcome at one cell. `error` and `budget` are the worst element's |candidate - float64| and its allowance, or a part of it
    that is enough."""

    name: str
    role: str
    status: Status
    error: float | None = None
    budget: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the referee can vouch for. At stage "done" every required cell passed; an "unsure" of an earlier stage was not run."""

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

    @property
    def passed(self) -> bool:
        """True when the kernel is known to be correct and honest, whatever its speed: never at a level below "correct"."""
        return self.survived and self.stage == "done"

    @property
    def survived(self) -> bool:
        """True when nothing stopped the candidate up to the level asked for, which may be less than `passed`."""
        return self.verdict not in ("rejected", "error")

    def to_json(self) -> dict[str, Any]:
        """The `kmint.verdict/1` document (plain dicts, lists and scalars)."""
        return {"schema": SCHEMA, **asdict(self)}
