"""Judges every specimen and reports false accepts, false rejects and wrong guards.

Cheats are judged twice: strictly, as drafts of a model, and without strict host code, as a user's
kernel. A cheat that is accepted there must carry the reservation on host code. Failures of the
referee count as failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from referee.judge import Level, Referee
from referee.sandbox.demand import Demand
from referee.selftest.corpus import ACCEPTED, KINDS, Kind, Specimen, load
from referee.timing.spent import added
from referee.verdict import Mode, Verdict
from referee.versions import facts, triton_version

SCHEMA = "kmint.selftest/1"

Row = Literal["gold", "wrong", "cheats", "cheats behind the screen"]
Column = Literal["accepted", "intended guard", "another guard", "error"]
Status = Literal["right", "false accept", "false reject", "wrong guard", "error", "skipped"]

ROWS: tuple[Row, ...] = ("gold", "wrong", "cheats", "cheats behind the screen")
COLUMNS: tuple[Column, ...] = ("accepted", "intended guard", "another guard", "error")


class Judge(Protocol):
    """The part of a referee that the selftest needs; several threads use it."""

    @property
    def mode(self) -> Mode: ...
    @property
    def spent(self) -> dict[str, float]: ...
    def judge(self, source: str, op: str, *, level: Level = ..., strict: bool = ...) -> Verdict: ...


@dataclass(frozen=True)
class Result:
    """The verdict on one specimen, and whether it is right."""

    row: Row
    name: str
    op: str
    title: str
    status: Status
    expected: tuple[str, ...]
    guard: str
    reason: str
    seconds: float

    @property
    def column(self) -> Column | None:
        """The column in the confusion matrix; None if it was skipped."""
        if self.status == "skipped":
            return None
        if self.status == "error":
            return "error"
        if self.guard == ACCEPTED:
            return "accepted"
        return "intended guard" if self.status == "right" else "another guard"


@dataclass(frozen=True)
class SelftestReport:
    """All results. `passed` means no false accept, no false reject, no wrong guard and
    no failure. `unjudged` counts the verdicts that an early stop left out. `profile` has the
    seconds of the verdicts' stages, over all threads together, and of the GPU processes' work.
    """

    mode: Mode
    results: tuple[Result, ...]
    environment: dict[str, Any]
    seconds: float
    unjudged: int = 0
    profile: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all verdicts were made, and every one was right."""
        right = all(result.status in ("right", "skipped") for result in self.results)
        return right and bool(self.results) and not self.unjudged

    @property
    def matrix(self) -> dict[Row, dict[Column, int]]:
        """Counts by kind of specimen and outcome."""
        counts: dict[Row, dict[Column, int]] = {row: dict.fromkeys(COLUMNS, 0) for row in ROWS}
        for result in self.results:
            if result.column:
                counts[result.row][result.column] += 1
        return counts

    def to_json(self) -> dict[str, Any]:
        """The `kmint.selftest/1` document."""
        wrong = [
            asdict(result) for result in self.results if result.status not in ("right", "skipped")
        ]
        return {
            "schema": SCHEMA, "mode": self.mode, "passed": self.passed, "matrix": self.matrix, "failures": wrong,
            "results": [asdict(result) for result in self.results], "environment": self.environment, "seconds": self.seconds,
            "unjudged": self.unjudged, "profile": self.profile,
        }  # fmt: skip


def specimens(kinds: Iterable[Kind] = KINDS, name: str = "") -> tuple[Specimen, ...]:
    """The specimens of these kinds whose name contains `name`."""
    return tuple(specimen for kind in kinds for specimen in load(kind) if name in specimen.name)


def run(
    chosen: Sequence[Specimen],
    *,
    mode: Mode | None = None,
    threads: int = 2,
    behind: bool = True,
    demand: Demand = "files",
    on_result: Callable[[Result], None] | None = None,
    judge: Judge | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> SelftestReport:
    """Judge all of `chosen`, several at a time, with results in order.

    `behind` also judges cheats without strict host code. `judge` gives the verdicts in place of a
    referee of this process. Once `stopped` is true, no further verdict begins.
    """
    started = time.perf_counter()
    results: list[Result] = []
    environment: dict[str, Any] = {}
    stages: dict[str, float] = {}
    # The pool is left last, so that closing the referees ends its running jobs.
    with (
        ThreadPoolExecutor(threads) as pool,
        nullcontext(judge) if judge else Referee(mode=mode, demand=demand) as referee,
    ):
        jobs = [(referee, specimen, specimen.kind == "cheats") for specimen in chosen]
        jobs += [
            (referee, specimen, False)
            for specimen in chosen
            if behind and specimen.kind == "cheats"
        ]

        def judged(job: tuple[Judge, Specimen, bool]) -> tuple[Result, Verdict | None] | None:
            return None if stopped() else _judge_specimen(*job)

        try:
            for found in pool.map(judged, jobs):
                if found is None:
                    continue
                result, verdict = found
                environment = environment or (verdict.environment if verdict else {})
                stages = added(stages, verdict.seconds if verdict else {})
                results.append(result)
                if on_result:
                    on_result(result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        used, worker = referee.mode, referee.spent
    return SelftestReport(
        used,
        tuple(results),
        environment,
        round(time.perf_counter() - started, 1),
        len(jobs) - len(results),
        {name: _rounded(part) for name, part in (("stages", stages), ("worker", worker))},
    )


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seconds.items()}


def _judge_specimen(
    referee: Judge, specimen: Specimen, strict: bool
) -> tuple[Result, Verdict | None]:
    row: Row = (
        "cheats behind the screen" if specimen.kind == "cheats" and not strict else specimen.kind
    )
    expected = specimen.expected(referee.mode, strict=strict)
    missing = "" if specimen.runs_on(referee.mode) else specimen.header["needs"]
    if reason := f"needs {missing}" if missing else _lacking(specimen):
        return Result(
            row,
            specimen.name,
            specimen.op,
            specimen.title,
            "skipped",
            tuple(sorted(expected)),
            "",
            reason,
            0.0,
        ), None
    started = time.perf_counter()
    verdict = referee.judge(specimen.source, specimen.op, level="correct", strict=strict)
    guard = ACCEPTED if verdict.passed else verdict.guard or verdict.verdict
    seconds = round(time.perf_counter() - started, 3)
    status = _status(verdict, guard, expected)
    if (
        verdict.passed
        and not verdict.host_code
        and ACCEPTED not in specimen.expected(referee.mode, strict=True)
    ):
        status = "false accept"
    return Result(
        row,
        specimen.name,
        specimen.op,
        specimen.title,
        status,
        tuple(sorted(expected)),
        guard,
        verdict.reason,
        seconds,
    ), verdict


def _lacking(specimen: Specimen) -> str:
    """The reason why the installed Triton cannot compile a specimen, or ""."""
    version = triton_version()
    if version is None:
        return ""
    words = sorted(word for word in facts(version).lacks if f"tl.{word}(" in specimen.source)
    return f"triton {version} has no tl.{words[0]}" if words else ""


def _status(verdict: Verdict, guard: str, expected: frozenset[str]) -> Status:
    if guard in expected:
        return "right"
    if verdict.verdict == "error":
        return "error"
    if verdict.passed:
        return "false accept"
    return "false reject" if ACCEPTED in expected else "wrong guard"


def failures(report: SelftestReport) -> Iterator[Result]:
    """The results that are wrong."""
    return (result for result in report.results if result.status not in ("right", "skipped"))
