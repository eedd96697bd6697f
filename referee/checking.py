"""Check a candidate's cells by replay as they become ready, while kernels of other cells are still being compiled.

What is found is what checking all cells in their own order finds: the first one that fails is reported, and those behind it count as
not reached, whichever was ready first. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from referee.gpu import Checked, Replayer, unreached
from referee.jobs import CellJob, Prepared
from referee.ops.spec import Cell
from referee.verdict import CellResult, Check, Rejection


class Checking:
    """One candidate's required cells. `take` them as they become ready; each cell once."""

    def __init__(self, replayer: Replayer, candidate: Prepared, cells: Sequence[Cell], *, seed: int) -> None:
        self._replayer, self._candidate, self._cells, self._seed = replayer, candidate, cells, seed
        self._results: dict[int, CellResult] = {}
        self._seconds: dict[str, float] = {}
        self._rejection: Rejection | None = None
        self._checks: tuple[Check, ...] = ()
        self._last = len(cells)

    def take(self, jobs: Mapping[int, CellJob]) -> None:
        """Check these cells, by number, up to the first that fails; none behind one that failed. Raises ReplayerError."""
        numbers = sorted(number for number in jobs if number < self._last)
        if not numbers:
            return
        found = self._replayer.check(replace(self._candidate, jobs=tuple(jobs[number] for number in numbers)), seed=self._seed)
        self._results |= dict(zip(numbers, found.cells, strict=True))
        self._seconds |= found.seconds
        if found.rejection or not self._rejection:
            self._checks = found.checks
        if found.rejection:
            self._rejection = found.rejection
            self._last = next((number for number in numbers if self._results[number].status == "fail"), numbers[-1])

    def found(self) -> Checked:
        """Everything that is known, in the order of the cells."""
        reached = {number: result for number, result in self._results.items() if number <= self._last}
        cells = tuple(reached.get(number) or unreached(cell) for number, cell in enumerate(self._cells))
        return Checked(cells, self._rejection, self._checks, self._seconds)
