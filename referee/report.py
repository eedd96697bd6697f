"""The growing verdict: the reports of all guards, the reservations, and the domain.

Guards that did not run are in the verdict too, with the reason. The domain has the cases that the
launcher accepts: a launcher that raises outside it has not failed, and the verdict names it. The
launcher's words come from the candidate's process. Forged words only narrow the verdict's claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from referee.ops.spec import Cell
from referee.reading.kernel_vocabulary import NOT_JUDGED
from referee.verdict import (
    CellResult,
    Check,
    Holds,
    HostCode,
    Mode,
    Outcome,
    Refused,
    Rejection,
    Stage,
    Verdict,
)

SCREEN_GUARDS = ("parse", "imports", "entry_point", "kernels")
"""Names of the checks of the text, in their order."""
LEAST_SHARE = 0.5
"""Minimum share of required cases; a launcher that refuses more than that is rejected."""


@dataclass
class Domain:
    """The cases that the launcher refuses, with its words, and circumstances in which `run` differs
    or raises. `changed` are inputs that it changes in place as the reference does.
    """

    refused: dict[Cell, str] = field(default_factory=dict)
    circumstances: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def note(self, circumstances: Sequence[str], changed: Sequence[str] = ()) -> None:
        """Add new circumstances and changed inputs."""
        self.circumstances += [one for one in circumstances if one not in self.circumstances]
        self.changed += [one for one in changed if one not in self.changed]

    def too_small(self, required: Sequence[Cell], bench: Cell | None) -> Rejection | None:
        """The rejection if the launcher refuses a timed case or more than half of all cases."""
        timed = [cell for cell in required if cell.role == "bench"] + ([bench] if bench else [])
        never = [cell for cell in timed if cell in self.refused]
        lost = [*never, *(cell for cell in required if cell in self.refused)]
        if not never and len(lost) <= LEAST_SHARE * len(required):
            return None
        reason = f"at {_shapes(lost[0])}: {self.refused[lost[0]]}"
        return Rejection("trace", "trace_error", reason)

    def holds(self, cells: Sequence[Cell]) -> Holds | None:
        """The domain among these cases; None if it has all of them in all circumstances."""
        refused = tuple(
            Refused(cell.name, self.refused[cell]) for cell in cells if cell in self.refused
        )
        if not refused and not self.circumstances and not self.changed:
            return None
        circumstances, changed = tuple(self.circumstances), tuple(self.changed)
        return Holds(self._words(cells), refused, circumstances, changed)

    def _words(self, cells: Sequence[Cell]) -> str:
        lost = [cell for cell in cells if cell in self.refused]
        parts = []
        if lost:
            held = [cell for cell in cells if cell not in self.refused]
            reach = []
            for dtype in dict.fromkeys(cell.inputs[0].dtype for cell in cells):
                widths = [
                    cell.inputs[0].shape[-1]
                    for cell in held
                    if cell.inputs[0].dtype == dtype and cell.inputs[0].shape
                ]
                reach.append(f"{dtype} up to {max(widths):,} columns" if widths else f"not {dtype}")
            words = f"{len(lost)} of {len(cells)} cases, such as {_shapes(lost[0])}, with {self.refused[lost[0]]}"
            parts.append(f"holds for {', '.join(reach)}; the launcher refuses {words}")
        if self.circumstances:
            parts.append(f"does not hold for {', '.join(self.circumstances)}")
        if self.changed:
            copies = "a copy" if len(self.changed) == 1 else "copies"
            names = " and ".join(self.changed)
            parts.append(
                f"changes {names} in place, as the reference does; judged and timed on {copies}"
            )
        return "; ".join(parts)


def _shapes(cell: Cell) -> str:
    return ", ".join(f"{spec.name} {list(spec.shape)} {spec.dtype}" for spec in cell.inputs[:2])


# A rejection may name a more specific guard, which is then added to these.
GUARDS = (
    *SCREEN_GUARDS, "host_code", "trace", "output_contract", "compile", "kernel_error", "out_of_bounds", "guard_band", "wrong_answer",
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
    """Ignore the message."""


def uncounted(done: int, total: int) -> None:
    """Ignore the count."""


class CaseCounter:
    """Counts finished cases, in any thread, and passes the count and the total to `count`."""

    def __init__(self, total: int, count: Callable[[int, int], None]) -> None:
        self._total, self._count = total, count
        self._done = 0
        self._lock = Lock()
        self.shared = 0
        """Number of cases whose result came from another candidate."""

    def one_more(self, *, shared: bool = False) -> None:
        """Count one more case."""
        with self._lock:
            self._done += 1
            self.shared += shared
            self._count(self._done, self._total)


class Beyond(Exception):
    """The referee cannot do this here. The text names the missing part and the remedy."""


LIMITS = frozenset({"launch_feature", NOT_JUDGED})
"""Guards that refuse a part of Triton which the referee does not judge. A kernel with such a part is
no wrong kernel, and a draft of a model has no need of it.
"""


class Rejected(Exception):
    """The candidate is rejected; `rejection` has the reason."""

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
    count: Callable[[int, int], None] = uncounted
    reservation: str = ""
    """End of the reason of a passing verdict."""
    host_code: tuple[HostCode, ...] = ()
    """Host code that the verdict does not vouch for."""
    holds: Holds | None = None
    """Where the verdict holds; None for everywhere."""
    weakness: str = ""
    """Missing sandbox layers. Every reason ends in them, except a rejection's, which a model reads.
    """

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """Add the time of the block to `stage`. A failure inside is reported at this stage."""
        self.stage = stage
        if stage not in self.seconds:
            self.tell(DOING.get(stage, stage))
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = round(
                self.seconds.get(stage, 0.0) + time.perf_counter() - started, 4
            )

    def passes(self, name: str, detail: str = "") -> None:
        """Report that a guard ran and found nothing."""
        self.checks[name] = Check(name, "pass", detail)

    def skips(self, name: str, why: str) -> None:
        """Report that a guard did not run."""
        self.checks[name] = Check(name, "skipped", why)

    def fails(self, name: str, why: str) -> None:
        """Report that a guard found a fault."""
        self.checks[name] = Check(name, "fail", why)

    def reserve(self, text: str) -> None:
        """Add a reservation to the reason of a passing verdict."""
        self.reservation = "; ".join(filter(None, (self.reservation, text)))

    def add(self, checks: Sequence[Check]) -> None:
        """Add the reports of another part."""
        self.checks.update({check.name: check for check in checks})

    def rejected(self, rejection: Rejection) -> Verdict:
        """The verdict on a rejected candidate."""
        self.fails(rejection.guard, rejection.reason)
        self._fill(f"stopped by {rejection.guard}")
        return self._verdict("rejected", rejection.stage, rejection.reason, rejection.guard)

    def failed(self, guard: str, reason: str) -> Verdict:
        """The verdict if the referee itself failed. It says nothing about the candidate."""
        self.fails(guard, reason)
        self._fill("the referee could not finish")
        return self._verdict("error", self.stage, reason, guard)

    def ended(self, outcome: Outcome, reason: str, *, unreached: str = "does not apply") -> Verdict:
        """The verdict on a candidate that no guard rejected.

        `unreached` is the reason why the remaining guards did not run. The stage is "done" if the
        candidate is known to be correct, else the last one passed.
        """
        self._fill(unreached)
        correct = self.checks["wrong_answer"].status == "pass"
        holds = self.holds.words if self.holds else ""
        parts = [holds, reason, self.reservation] if correct else [reason]
        reason = "; ".join(filter(None, (*parts, self.weakness)))
        return self._verdict(outcome, "done" if correct else self.stage, reason, None)

    def _fill(self, why: str) -> None:
        for name in GUARDS:
            if name not in self.checks:
                self.skips(name, why)

    def _verdict(self, outcome: Outcome, stage: Stage, reason: str, guard: str | None) -> Verdict:
        order = {name: position for position, name in enumerate(GUARDS)}
        checks = tuple(
            sorted(self.checks.values(), key=lambda check: order.get(check.name, len(order)))
        )
        self.seconds["total"] = round(
            sum(value for name, value in self.seconds.items() if name != "total"), 4
        )
        return Verdict(
            op=self.op, verdict=outcome, stage=stage, reason=reason, guard=guard, mode=self.mode, checks=checks, cells=self.cells,
            timing=self.timing, environment=self.environment, seed=self.seed, seconds=self.seconds, host_code=self.host_code,
            holds=self.holds,
        )  # fmt: skip
