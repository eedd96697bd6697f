"""Judges every known kernel and says where the referee was wrong: a false accept, a false reject, or the wrong guard.

Cheats are judged twice: as they are, and with the screen of host code off, which shows that nothing but quick feedback depends on
the screen. The referee's own failures count as failures here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from referee.judge import Referee
from referee.selftest.corpus import ACCEPTED, KINDS, Kind, Specimen, load
from referee.verdict import Mode, Verdict

SCHEMA = "kmint.selftest/1"

Row = Literal["gold", "wrong", "cheats", "cheats behind the screen"]
Column = Literal["accepted", "intended guard", "another guard", "error"]
Status = Literal["right", "false accept", "false reject", "wrong guard", "error", "skipped"]

ROWS: tuple[Row, ...] = ("gold", "wrong", "cheats", "cheats behind the screen")
COLUMNS: tuple[Column, ...] = ("accepted", "intended guard", "another guard", "error")


@dataclass(frozen=True)
class Result:
    """What the referee said of one specimen, and whether it was right."""

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
        """Where it counts in the confusion matrix; None when it was skipped."""
        if self.status == "skipped":
            return None
        if self.status == "error":
            return "error"
        if self.guard == ACCEPTED:
            return "accepted"
        return "intended guard" if self.status == "right" else "another guard"


@dataclass(frozen=True)
class SelftestReport:
    """All results. `passed`: no false accept, no false reject, no right verdict from the wrong guard, no failure."""

    mode: Mode
    results: tuple[Result, ...]
    environment: dict[str, Any]
    seconds: float

    @property
    def passed(self) -> bool:
        """True when every verdict was right."""
        return bool(self.results) and all(result.status in ("right", "skipped") for result in self.results)

    @property
    def matrix(self) -> dict[Row, dict[Column, int]]:
        """Counts by kind of specimen and by what became of it."""
        counts: dict[Row, dict[Column, int]] = {row: dict.fromkeys(COLUMNS, 0) for row in ROWS}
        for result in self.results:
            if result.column:
                counts[result.row][result.column] += 1
        return counts

    def to_json(self) -> dict[str, Any]:
        """The `kmint.selftest/1` document."""
        wrong = [asdict(result) for result in self.results if result.status not in ("right", "skipped")]
        return {
            "schema": SCHEMA, "mode": self.mode, "passed": self.passed, "matrix": self.matrix, "failures": wrong,
            "results": [asdict(result) for result in self.results], "environment": self.environment, "seconds": self.seconds,
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
    on_result: Callable[[Result], None] | None = None,
) -> SelftestReport:
    """Judge all of `chosen`, several at a time, in the order given. `behind` also judges cheats with the screen off."""
    started = time.perf_counter()
    results: list[Result] = []
    environment: dict[str, Any] = {}
    # The pool is left last: what it is still judging then ends with the referees.
    with ThreadPoolExecutor(threads) as pool, Referee(mode=mode) as screened, Referee(mode=mode, host_screen=False) as unscreened:
        jobs = [(screened, specimen, True) for specimen in chosen]
        jobs += [(unscreened, specimen, False) for specimen in chosen if behind and specimen.kind == "cheats"]
        try:
            for result, verdict in pool.map(lambda job: _judged(*job), jobs):
                environment = environment or (verdict.environment if verdict else {})
                results.append(result)
                if on_result:
                    on_result(result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        used = screened.mode
    return SelftestReport(used, tuple(results), environment, round(time.perf_counter() - started, 1))


def _judged(referee: Referee, specimen: Specimen, screened: bool) -> tuple[Result, Verdict | None]:
    row: Row = specimen.kind if screened else "cheats behind the screen"
    expected = specimen.expected(referee.mode, screened=screened)
    if not specimen.runs_on(referee.mode):
        reason = f"needs {specimen.header['needs']}"
        return Result(row, specimen.name, specimen.op, specimen.title, "skipped", tuple(sorted(expected)), "", reason, 0.0), None
    started = time.perf_counter()
    verdict = referee.judge(specimen.source, specimen.op, level="correct")
    guard = ACCEPTED if verdict.passed else verdict.guard or verdict.verdict
    seconds = round(time.perf_counter() - started, 3)
    status = _status(verdict, guard, expected)
    return Result(row, specimen.name, specimen.op, specimen.title, status, tuple(sorted(expected)), guard, verdict.reason, seconds), verdict


def _status(verdict: Verdict, guard: str, expected: frozenset[str]) -> Status:
    if verdict.verdict == "error":
        return "error"
    if guard in expected:
        return "right"
    if verdict.passed:
        return "false accept"
    return "false reject" if ACCEPTED in expected else "wrong guard"


def failures(report: SelftestReport) -> Iterator[Result]:
    """What the referee got wrong."""
    return (result for result in report.results if result.status not in ("right", "skipped"))
