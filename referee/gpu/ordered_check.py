"""Checks a candidate's test cases by replay while kernels of other cases are still being compiled.

The order of the cases is fixed beforehand, and the check stops at the first failure. So the result
does not depend on compilation speed. Limits: not for candidates that compare configurations; their
first calls are checked once for all cases. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from referee.gpu.jobs import Checked, CompiledCandidate, ReplayJob, unreached
from referee.gpu.replayer import Replayer
from referee.ops.spec import Cell
from referee.verdict import CellResult, Check, Rejection


class OrderedCheck:
    """The required test cases of one candidate.

    `order` lists the number of each case once, best with early ones first.
    """

    def __init__(
        self,
        replayer: Replayer,
        candidate: CompiledCandidate,
        cells: Sequence[Cell],
        order: Sequence[int],
        *,
        seed: int,
    ) -> None:
        self._replayer, self._candidate, self._cells, self._seed = replayer, candidate, cells, seed
        self._waiting = list(order)
        self._ready: dict[int, ReplayJob] = {}
        self._results: dict[int, CellResult] = {}
        self._seconds: dict[str, float] = {}
        self._rejection: Rejection | None = None
        self._checks: tuple[Check, ...] = ()

    def take(self, jobs: Mapping[int, ReplayJob]) -> None:
        """Checks the compiled cases that are next, unless one has failed. Raises ReplayerError."""
        self._ready |= jobs
        due = []
        while self._waiting and self._waiting[0] in self._ready:
            due.append(self._waiting.pop(0))
        if self._rejection or not due:
            return
        found = self._replayer.check(
            replace(self._candidate, jobs=tuple(self._ready[number] for number in due)),
            seed=self._seed,
        )
        self._results |= dict(zip(due, found.cells, strict=True))
        self._seconds |= found.seconds
        self._rejection, self._checks = found.rejection, found.checks

    @property
    def passing(self) -> bool:
        """Whether a case has passed and none has failed."""
        return bool(self._results) and self._rejection is None

    def found(self) -> Checked:
        """All results so far, in the order of the test cases."""
        cells = tuple(
            self._results.get(number) or unreached(cell) for number, cell in enumerate(self._cells)
        )
        return Checked(cells, self._rejection, self._checks, self._seconds)
