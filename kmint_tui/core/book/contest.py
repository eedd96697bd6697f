"""The contest of one operation: races choose a kernel for each shape, the tuner changes its launch
constants, and the referee judges the winners.

A race times all kernels in one run and checks each at the timed case alone. So the whole verdict,
which decides, is made for the winners only. A winner that the referee rejects gives its place to
the next one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kmint_tui.core.book.planning import Timed, Work
from kmint_tui.errors import KmintError
from kmint_tui.history.records import Author, tuned_by
from kmint_tui.minting.tuning import MARGIN, Sweep, sweep, written_at

if TYPE_CHECKING:
    from kmint_tui.core.judges import Opened
    from kmint_tui.graph.program import Program
    from kmint_tui.minting.tuning import Racer
    from referee.problem import TaskName
    from referee.verdict import Verdict

Raced = tuple[int, float]
"""A contender's number and its microseconds at a place; `UNRACED` where it did not race."""
UNRACED = 1.0
MOST_TRIES = 4
"""Verdicts for one place, while the referee rejects the winners."""
_WORST_FIRST = ("loss", "unsure", "tie", "win", "correct")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One kernel of the contest and its makers.

    `parent` is the contender that the tuner changed. `changes` names the tuner's changes, and the
    structure of a kernel that the template wrote for one shape.
    """

    source: str
    author: Author
    smith: str
    smith_sha256: str
    changes: str = ""
    parent: int | None = None


@dataclass
class Seconds:
    """The time that contests spent in each part, over all threads together."""

    racing: float = 0.0
    tuning: float = 0.0
    judging: float = 0.0
    loading: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The contenders, their verdicts by number, and the best of each place with its timing.

    The first `given` contenders came to the contest; the others were made in it. `failures` has a
    line for each place without a kernel.
    """

    contenders: tuple[Contender, ...]
    given: int
    verdicts: Mapping[int, Verdict]
    best: Mapping[Timed, tuple[int, Mapping[str, Any]]]
    failures: tuple[str, ...]
    seconds: Seconds = field(default_factory=Seconds)


def tuned(racer: Racer, number: int, source: str, task: str | TaskName) -> Sweep:
    """The sweep over the launch constants of one kernel at one task. Raises the errors of a race."""
    return sweep(number, source, lambda sources: racer.time_variants(sources, task))


def _assigned(tries: Mapping[Timed, Sequence[Raced]]) -> dict[int, list[Timed]]:
    """The places at which each contender is to be timed.

    A contender takes every place at which it is the fastest but for the noise of a race. So few
    contenders are judged.
    """
    near = {
        timed: {at for at, us in order if us <= MARGIN * order[0][1]}
        for timed, order in tries.items()
        if order
    }
    found: dict[int, list[Timed]] = {}
    while near:
        counts: dict[int, int] = {}
        for numbers in near.values():
            for number in numbers:
                counts[number] = counts.get(number, 0) + 1
        chosen = max(counts, key=lambda number: (counts[number], -number))
        found[chosen] = [timed for timed, numbers in near.items() if chosen in numbers]
        near = {timed: numbers for timed, numbers in near.items() if chosen not in numbers}
    return found


class Contest:
    """The contest of one piece of work. `run` belongs to one thread."""

    def __init__(
        self,
        opened: Opened,
        work: Work,
        places: Sequence[Timed],
        contenders: Sequence[Contender],
        program: Program | None = None,
        tell: Callable[[str], object] = lambda step: None,
    ) -> None:
        """`program` is that of the operation, from which the template writes for each shape."""
        self._opened, self._work, self._places = opened, work, places
        self._contenders = list(contenders)
        self._given = len(self._contenders)
        self._program, self._tell = program, tell
        self._verdicts: dict[int, Verdict] = {}
        self._timings: dict[Timed, dict[int, Mapping[str, Any]]] = {one: {} for one in places}
        self._asked: set[tuple[int, Timed]] = set()
        self._seconds = Seconds()

    def run(self) -> Outcome:
        """The outcome. Raises KmintError where the referee itself cannot work."""
        order = {timed: self._order(timed) for timed in self._places}
        for _ in range(MOST_TRIES):
            # A second verdict may reject a kernel. The places that it had won are then open again.
            tries = {
                timed: [(at, us) for at, us in order[timed] if self._is_open(at, timed)]
                for timed in self._places
                if self._best(timed) is None
            }
            for number, places in _assigned(tries).items():
                self._judge(number, places)
        best = {timed: found for timed in self._places if (found := self._best(timed))}
        failures = [
            f"{timed.place}: {self._why(order[timed])}"
            for timed in self._places
            if timed not in best
        ]
        return Outcome(
            tuple(self._contenders),
            self._given,
            self._verdicts,
            best,
            tuple(failures),
            self._seconds,
        )

    def _order(self, timed: Timed) -> list[Raced]:
        """The contenders at one place, the fastest first: the tuned one, then those of the race."""
        began = time.monotonic()
        self._tell("racing")
        order = self._raced(timed)
        self._seconds.racing += time.monotonic() - began
        racer = self._opened.racer
        if racer is None or not order:
            return order
        began = time.monotonic()
        self._tell("tuning")
        try:
            fastest, us = order[0]
            found = tuned(racer, fastest, self._contenders[fastest].source, timed.task)
        except Exception as error:
            if not _is_refusal(error):
                raise
            return order
        finally:
            self._seconds.tuning += time.monotonic() - began
        if found.source is None:
            return order
        return [(self._tuned(fastest, found), us / (found.gain or 1.0)), *order]

    def _raced(self, timed: Timed) -> list[Raced]:
        """The drafted contenders by their time; a race leaves out those that fail at this place."""
        drafted = list(range(self._given))
        racer = self._opened.racer
        if racer is not None:
            drafted = list(dict.fromkeys((*drafted, *self._written(timed))))
        if racer is None or len(drafted) < 2:
            return [(at, UNRACED) for at in drafted]
        while len(drafted) > 1:
            try:
                laps = racer.time_variants(
                    [self._contenders[at].source for at in drafted], timed.task
                )
            except Exception as error:
                if not _is_refusal(error):
                    raise
                # The race runs against its first kernel, which must be right.
                drafted = drafted[1:]
                continue
            times = [(at, lap.us) for at, lap in zip(drafted, laps, strict=True) if lap.us]
            return sorted(times, key=lambda found: found[1])
        return [(at, UNRACED) for at in drafted]

    def _written(self, timed: Timed) -> list[int]:
        """The numbers of the template's kernels for one shape."""
        shape = next(iter(timed.task.shapes), "")
        return [
            self._added(
                Contender(
                    source=one.source,
                    author="template",
                    smith="",
                    smith_sha256="",
                    changes=one.words,
                )
            )
            for one in written_at(self._program, timed.task, shape, ()).kernels
        ]

    def _tuned(self, parent: int, found: Sweep) -> int:
        """The number of a tuned kernel."""
        assert found.source is not None
        maker = self._contenders[parent]
        author, changes = tuned_by(maker.author, maker.changes, found.changes)
        return self._added(
            replace(maker, source=found.source, author=author, changes=changes, parent=parent)
        )

    def _added(self, contender: Contender) -> int:
        """The number of a contender; equal kernels are in the contest once."""
        for at, one in enumerate(self._contenders):
            if one.source == contender.source:
                return at
        self._contenders.append(contender)
        return len(self._contenders) - 1

    def _is_rejected(self, number: int) -> bool:
        """Whether the referee was asked about a contender, and did not accept and time it."""
        found = self._verdicts.get(number)
        return found is not None and not (found.passed and found.timing is not None)

    def _is_open(self, number: int, timed: Timed) -> bool:
        """Whether a contender may still win a place: it was neither rejected nor judged there."""
        return not self._is_rejected(number) and (number, timed) not in self._asked

    def _judge(self, number: int, places: Sequence[Timed]) -> None:
        """Ask the referee about a contender at every place, and keep its times at these."""
        began = time.monotonic()
        self._tell("judging")
        task = self._work.task
        if not isinstance(task, str):
            task = replace(task, timed=tuple(one.task.shapes[0] for one in places))
        found = self._opened.judge.judge(
            self._contenders[number].source, task, level="full", strict=True
        )
        self._seconds.judging += time.monotonic() - began
        before = self._verdicts.get(number)
        self._verdicts[number] = found if before is None else _joined(before, found)
        for timed in places:
            self._asked.add((number, timed))
            if (timing := timing_at(found, timed.case.name)) is not None:
                self._timings[timed][number] = timing

    def _best(self, timed: Timed) -> tuple[int, Mapping[str, Any]] | None:
        """The accepted contender with the largest ratio at a place, and its timing there."""
        found = {
            number: timing
            for number, timing in self._timings[timed].items()
            if not self._is_rejected(number)
        }
        return max(found.items(), key=lambda pair: pair[1]["ratio"]["ratio"], default=None)

    def _why(self, order: Sequence[Raced]) -> str:
        """The reason why a place has no kernel."""
        judged = [self._verdicts[number] for number, _ in order if number in self._verdicts]
        return judged[-1].reason if judged else "no kernel passed the race at this shape"


def _joined(before: Verdict, found: Verdict) -> Verdict:
    """A second verdict on an accepted kernel, with the times of both verdicts.

    A rejection replaces the first verdict. A second verdict without times leaves it as it is.
    """
    if found.verdict == "rejected":
        return found
    if not found.passed or found.timing is None or before.timing is None:
        return before
    shapes = [
        one for timing in (before.timing, found.timing) for one in timing.get("shapes") or [timing]
    ]
    ratios: list[Any] = [(one.get("ratio") or {}).get("ratio") for one in shapes]
    mean = statistics.geometric_mean(ratios) if all(ratios) else None
    return replace(
        found,
        verdict=min(before.verdict, found.verdict, key=_WORST_FIRST.index),
        reason="; ".join(filter(None, (before.reason, found.reason))),
        timing={**shapes[0], "shapes": shapes, "geometric_mean": mean},
    )


def timing_at(verdict: Verdict, cell: str) -> Mapping[str, Any] | None:
    """The timing of a verdict at one case, if it has a ratio there."""
    timing = verdict.timing or {}
    for one in timing.get("shapes") or [timing]:
        interval = one.get("ratio") or {}
        if one.get("cell") == cell and isinstance(interval.get("ratio"), (int, float)):
            found: Mapping[str, Any] = one
            return found
    return None


def _is_refusal(error: Exception) -> bool:
    """Whether a race or a sweep was refused, which is no fault of kmint."""
    from referee.variant_timing import VariantsNotTimed

    return isinstance(error, (VariantsNotTimed, KmintError))
