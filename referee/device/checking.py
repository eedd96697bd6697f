"""Check a candidate's cells by replay as they become ready, while kernels of other cells are still being compiled.

Cells are checked in an order that is fixed beforehand, up to the first that fails, so that what is found does not depend on which was
ready first. Limits: not for candidates that compare configurations, whose first calls are checked once for all cells. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from referee.device.gpu import Checked, Replayer, unreached
from referee.device.jobs import CellJob, Prepared
from referee.ops.spec import Cell
from referee.verdict import CellResult, Check, Rejection


class Checking:
    """One candidate's required cells. `order` has the number of each once: best those that are ready soon first."""

    def __init__(self, replayer: Replayer, candidate: Prepared, cells: Sequence[Cell], order: Sequence[int], *, seed: int) -> None:
        self._replayer, self._candidate, self._cells, self._seed = replayer, candidate, cells, seed
        self._waiting = list(order)
        self._ready: dict[int, CellJob] = {}
        self._results: dict[int, CellResult] = {}
        self._seconds: dict[str, float] = {}
        self._rejection: Rejection | None = None
        self._checks: tuple[Check, ...] = ()

    def take(self, jobs: Mapping[int, CellJob]) -> None:
        """These cells, by number, are ready: check those whose turn it is, if none has failed yet. Raises ReplayerError."""
        self._ready |= jobs
        due = []
        while self._waiting and self._waiting[0] in self._ready:
            due.append(self._waiting.pop(0))
        if self._rejection or not due:
            return
        found = self._replayer.check(replace(self._candidate, jobs=tuple(self._ready[number] for number in due)), seed=self._seed)
        self._results |= dict(zip(due, found.cells, strict=True))
        self._seconds |= found.seconds
        self._rejection, self._checks = found.rejection, found.checks

    @property
    def passing(self) -> bool:
        """Whether a cell has passed, and none has failed yet."""
        return bool(self._results) and self._rejection is None

    def found(self) -> Checked:
        """Everything that is known, in the order of the cells."""
        cells = tuple(self._results.get(number) or unreached(cell) for number, cell in enumerate(self._cells))
        return Checked(cells, self._rejection, self._checks, self._seconds)
