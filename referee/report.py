"""Collects what every guard says while a candidate is judged, and makes the verdict of it.

Every guard that exists is in the verdict: also those that were not reached, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from referee.reading.screen import NAMES as SCREEN_GUARDS
from referee.verdict import CellResult, Check, Mode, Outcome, Rejection, Stage, Verdict

# Beside these, a rejection may name a more special guard; it is then reported in addition.
GUARDS = (
    *SCREEN_GUARDS, "trace", "output_contract", "compile", "kernel_error", "out_of_bounds", "guard_band", "wrong_answer",
    "input_mutated", "not_deterministic", "same_plan", "timing",
)  # fmt: skip


DOING: Mapping[Stage, str] = {
    "screen": "reading the kernel",
    "trace": "tracing the kernel",
    "compile": "compiling the kernel",
    "correct": "comparing the kernel's answers with the reference",
    "timing": "timing the kernel and its baselines",
}


def to_nobody(step: str) -> None:
    """Where no one wants to know."""


class Rejected(Exception):
    """The candidate fell; carries why."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


@dataclass
class Report:
    """The growing verdict on one candidate."""

    op: str
    mode: Mode
    seed: int | None = None
    checks: dict[str, Check] = field(default_factory=dict)
    cells: tuple[CellResult, ...] = ()
    timing: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stage: Stage = "screen"
    tell: Callable[[str], None] = to_nobody
    reservation: str = ""
    """What the reason of a passing verdict ends in."""

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """Counts the time to `stage`, which a failure inside is reported at."""
        self.stage = stage
        if stage not in self.seconds:
            self.tell(DOING.get(stage, stage))
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.perf_counter() - started, 4)

    def passes(self, name: str, detail: str = "") -> None:
        """A guard ran and found nothing."""
        self.checks[name] = Check(name, "pass", detail)

    def skips(self, name: str, why: str) -> None:
        """A guard did not run."""
        self.checks[name] = Check(name, "skipped", why)

    def fails(self, name: str, why: str) -> None:
        """A guard found something."""
        self.checks[name] = Check(name, "fail", why)

    def reserve(self, text: str) -> None:
        """Say so in the reason of a passing verdict."""
        self.reservation = "; ".join(filter(None, (self.reservation, text)))

    def add(self, checks: Sequence[Check]) -> None:
        """Takes over reports made elsewhere."""
        self.checks.update({check.name: check for check in checks})

    def rejected(self, rejection: Rejection) -> Verdict:
        """The verdict for a candidate that fell."""
        self.fails(rejection.guard, rejection.reason)
        self._fill(f"stopped by {rejection.guard}")
        return self._verdict("rejected", rejection.stage, rejection.reason, rejection.guard)

    def failed(self, guard: str, reason: str) -> Verdict:
        """The verdict when the referee itself could not do its work: nothing is said of the candidate."""
        self.fails(guard, reason)
        self._fill("the referee could not finish")
        return self._verdict("error", self.stage, reason, guard)

    def ended(self, outcome: Outcome, reason: str, *, unreached: str = "does not apply") -> Verdict:
        """The verdict for a candidate that nothing stopped; `unreached` says why the remaining guards did not run.

        Its stage is "done" where it is known to be correct, else the last one passed.
        """
        self._fill(unreached)
        correct = self.checks["wrong_answer"].status == "pass"
        reason = "; ".join(filter(None, (reason, self.reservation))) if correct else reason
        return self._verdict(outcome, "done" if correct else self.stage, reason, None)

    def _fill(self, why: str) -> None:
        for name in GUARDS:
            if name not in self.checks:
                self.skips(name, why)

    def _verdict(self, outcome: Outcome, stage: Stage, reason: str, guard: str | None) -> Verdict:
        order = {name: position for position, name in enumerate(GUARDS)}
        checks = tuple(sorted(self.checks.values(), key=lambda check: order.get(check.name, len(order))))
        self.seconds["total"] = round(sum(value for name, value in self.seconds.items() if name != "total"), 4)
        return Verdict(
            op=self.op, verdict=outcome, stage=stage, reason=reason, guard=guard, mode=self.mode, checks=checks, cells=self.cells,
            timing=self.timing, environment=self.environment, seed=self.seed, seconds=self.seconds,
        )  # fmt: skip
