"""The test cases of one verdict, and their data at one seed.

The judge takes its cases from here, and `kmint ops show` its numbers: the operation's fixed cases,
and those drawn from the secret seed. Torch-free.

Drawing inputs and computing float64 answers takes about as long as running a kernel. So each
happens once for all runs of a case, and for all candidates at one seed (`Referee.judge`). Limit:
all data stays in memory, so the cases must be small enough for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from referee.asked_shape import feasible
from referee.concurrency import Memo
from referee.ops.fresh_capabilities import fresh_capabilities
from referee.ops.fresh_cells import H100_MULTIPROCESSORS, fresh_cells
from referee.ops.fresh_widths import fresh_long, fresh_middle, fresh_widths, wide_cells
from referee.ops.spec import Cell
from referee.problem import Problem, capabilities, required
from referee.verdict import CellResult

if TYPE_CHECKING:
    from torch import Tensor

    from referee.ops.task import Task

FEW_ROWS = 64
"""Maximum number of rows of a fixed case that the interpreter runs next to a replay."""


@dataclass(frozen=True, kw_only=True)
class CaseList:
    """The required test cases, `fixed` and `drawn`, and the capability cases.

    `once` names the drawn cases that run a single time, because many others differ from them only
    in their width.
    """

    fixed: tuple[Cell, ...]
    drawn: tuple[Cell, ...]
    capabilities: tuple[Cell, ...] = ()
    once: frozenset[str] = frozenset()

    @property
    def required(self) -> list[Cell]:
        """The required cases, fixed ones first."""
        return [*self.fixed, *self.drawn]


def without_gpu(problem: Problem, seed: int) -> CaseList:
    """The cases of a verdict without a GPU. The fixed ones are small enough for the interpreter."""
    cells, op = problem.cells("cpu"), problem.op
    widths, long = fresh_widths(op, seed, gpu=False), fresh_long(op, seed)
    return CaseList(
        fixed=tuple(cell for cell in required(cells) if feasible(cell)),
        drawn=(*fresh_cells(op, seed, gpu=False), *widths, *fresh_middle(op, seed), *long),
        capabilities=tuple(
            fresh_capabilities(
                op, [cell for cell in capabilities(cells) if feasible(cell)], seed, gpu=False
            )
        ),
        once=frozenset(cell.name for cell in (*widths, *long)),
    )


def replayed(
    problem: Problem,
    seed: int,
    *,
    multiprocessors: int = H100_MULTIPROCESSORS,
    wide: bool = False,
) -> CaseList:
    """The cases that a GPU with this number of multiprocessors replays. The first case is timed.

    `wide` adds long rows as capabilities. Their kernels take a compiler long, so only a kernel that
    is to be saved gets them.
    """
    cells, op = problem.cells("gpu"), problem.op
    return CaseList(
        fixed=tuple(required(cells)),
        drawn=fresh_cells(op, seed, gpu=True, multiprocessors=multiprocessors),
        capabilities=(
            *fresh_capabilities(op, capabilities(cells), seed, gpu=True),
            *(wide_cells(op) if wide else ()),
        ),
    )


def beside_replay(problem: Problem, seed: int) -> CaseList:
    """The small cases next to a replay. A user's task has fixed cases only."""
    cells, op = [cell for cell in problem.cells("cpu") if feasible(cell)], problem.op
    fixed = required(cells)
    if op.is_function:
        return CaseList(fixed=tuple(fixed), drawn=())
    few = tuple(cell for cell in fixed if cell.inputs[0].shape[0] <= FEW_ROWS)
    drawn = (*fresh_widths(op, seed, gpu=True), *fresh_long(op, seed))
    shown = fresh_capabilities(op, capabilities(cells), seed, gpu=False)
    # A case without rows starts no program, so it shows nothing.
    some = tuple(cell for cell in shown if 0 < cell.inputs[0].shape[0] <= FEW_ROWS)
    return CaseList(fixed=few, drawn=drawn, capabilities=some)


Kind = Callable[[Problem, int], CaseList]


T = TypeVar("T")


class _NotKept(Exception):
    """The value must not be stored."""


class CaseData:
    """The data of one task at one seed, for any number of threads. Callers must not change it."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self._inputs, self._answers, self._runs = Memo(), Memo(), Memo()

    @property
    def drawn(self) -> int:
        """Number of cells whose inputs are drawn."""
        return len(self._inputs)

    def inputs(self, cell: Cell) -> tuple[Tensor, ...]:
        """The inputs of a cell."""
        return self._inputs.get(cell, partial(self.task.inputs, cell, self.seed))

    def right_answers(self, cell: Cell) -> None:
        """Compute the answers that `compare` needs first, ahead of time."""
        from referee.answers.compare import compute_ahead

        compute_ahead(self.task, cell, self.inputs(cell), self._answers)

    def shared(
        self, key: Hashable | None, run: Callable[[], T], *, keep: Callable[[T], bool]
    ) -> tuple[T, bool]:
        """The result of `run`, or the stored result of an earlier call with the same key.

        The second value is True if the result is from another call. `keep` decides whether a result
        is stored. A thread waits for another one that runs the same key. Without a key, nothing is
        shared.
        """
        if key is None:
            return run(), False
        own: list[T] = []

        def made() -> T:
            own.append(run())
            if not keep(own[0]):
                raise _NotKept
            return own[0]

        try:
            found = self._runs.get(key, made)
        except _NotKept:
            return own[0], False
        return found, not own

    def compare(self, cell: Cell, outputs: Sequence[Tensor]) -> CellResult:
        """Judge outputs for the inputs of this cell, as `referee.answers.compare` does."""
        from referee.answers.compare import compare

        return compare(self.task, cell, self.inputs(cell), outputs, memo=self._answers)
