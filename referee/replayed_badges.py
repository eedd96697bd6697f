"""The cells that only earn badges, on a GPU: traced, compiled and replayed beside everything else, and told of in the end.

They are replayed once a candidate is known to do something right, so that one that fails at once costs no time here. What they find
changes no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from types import TracebackType
from typing import Self

from referee.aside import Aside
from referee.compiling.compile_ahead import CompileAhead
from referee.device.gpu import Replayer
from referee.device.jobs import Prepared
from referee.judgement import Judgement
from referee.ops.spec import Cell
from referee.reading.kernels import KernelModule
from referee.verdict import CellResult


class ReplayedBadges:
    """The badges of one candidate. A context manager: at its end what is still being done is stopped."""

    def __init__(
        self, judgement: Judgement, module: KernelModule, replayer: Replayer, cells: Sequence[Cell], ahead: CompileAhead, *, seed: int
    ) -> None:
        self._judgement, self._module, self._replayer, self._cells, self._seed = judgement, module, replayer, cells, seed
        self._ahead = ahead
        self._candidate: Future[Prepared] = Future()
        self._aside = Aside("badges")

    def __enter__(self) -> Self:
        if self._cells:
            self._replayer.expect_badges()
        self._earned = self._aside.submit(self._earn)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._candidate.cancel()
        self._aside.__exit__(kind, error, trace)

    def go_on(self, candidate: Prepared) -> None:
        """`candidate`, as it is to be replayed, does something right. Says nothing new the second time."""
        if not self._candidate.done():
            self._candidate.set_result(candidate)

    def results(self) -> tuple[CellResult, ...]:
        """One for each cell; `go_on` must have been called. Raises ReplayerError or JobLost."""
        return self._earned.result()

    def _earn(self) -> tuple[CellResult, ...]:
        traced, untraced = self._judgement.trace_capabilities(self._module, self._cells, stop=self._aside.stop)
        jobs, uncompiled = self._judgement.compile_capabilities(self._module, traced, self._ahead, stop=self._aside.stop)
        try:
            candidate = self._candidate.result()
        except CancelledError:
            return ()
        checked = self._replayer.check(replace(candidate, jobs=tuple(jobs)), seed=self._seed)
        return (*checked.cells, *untraced, *uncompiled)
