"""The small cells that Triton's interpreter looks at beside a replay: traced, and their inputs drawn, while other cells are traced.

Nothing that is replayed waits for them. Limits: inputs are drawn as far as there is time; who looks at the cells draws the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from referee.aside import Aside
from referee.judgement import Judgement, Traced, unless_rejected
from referee.one_thread import one_thread
from referee.ops.fresh_widths import fresh_widths
from referee.ops.spec import Cell
from referee.parts import parts
from referee.reading.kernels import KernelModule
from referee.subject import Subject, feasible, required

if TYPE_CHECKING:
    from torch import Tensor

FEW_ROWS, TRACERS = 64, 2


def small_cells(subject: Subject, seed: int) -> list[Cell]:
    """The fixed cells of the CPU path but for those of hundreds of rows, and what the seed draws of every order of width; of a user's task
    those that are small enough."""
    cells = [cell for cell in required(subject.cells("cpu")) if feasible(cell)]
    if subject.op.origin == "user":
        return cells
    return [*(cell for cell in cells if cell.inputs[0].shape[0] <= FEW_ROWS), *fresh_widths(subject.op, seed, gpu=True)]


class SmallCells:
    """Those of one candidate. A context manager: at its end what is still being done is stopped."""

    def __init__(self, judgement: Judgement, module: KernelModule, seed: int) -> None:
        self.cells = small_cells(judgement.subject, seed)
        self._judgement, self._module, self._seed = judgement, module, seed
        self._drawn: dict[str, tuple[Tensor, ...]] = {}
        self._drawing = True
        self._aside = Aside("small", TRACERS + 1)

    def __enter__(self) -> Self:
        trace = partial(self._judgement.traced, self._module, stop=self._aside.stop)
        halves = parts([1.0] * len(self.cells), self.cells, TRACERS)
        self._traces = [self._aside.submit(partial(trace, some)) for some in halves]
        self._aside.submit(self._draw)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._drawing = False
        self._aside.__exit__(kind, error, trace)

    def traced(self) -> Traced:
        """All of them, in order. Raises Rejected, or what the tracing of some ended in."""
        return [pair for trace in self._traces for pair in unless_rejected(trace.result())]

    def drawn(self) -> Mapping[str, tuple[Tensor, ...]]:
        """The inputs of those that are drawn, by cell. No more are drawn then."""
        self._drawing = False
        return self._drawn.copy()

    def _draw(self) -> None:
        task = self._judgement.subject.task("cpu")
        with one_thread():
            for cell in self.cells:
                if not self._drawing:
                    break
                self._drawn[cell.name] = task.inputs(cell, self._seed)
