"""The cells that only earn badges, without a GPU: traced, and run in the interpreter, beside the required ones.

What they find changes no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Self

from referee.aside import Aside
from referee.cpu_path import CpuPath
from referee.judgement import Judgement
from referee.one_thread import one_thread
from referee.ops.spec import Cell
from referee.reading.kernels import KernelModule
from referee.verdict import CellResult


class InterpretedBadges:
    """The badges of one candidate. A context manager: at its end what is still being done is stopped."""

    def __init__(self, judgement: Judgement, module: KernelModule, cells: Sequence[Cell]) -> None:
        self._judgement, self._module, self._cells = judgement, module, cells
        self._path: Future[CpuPath] = Future()
        self._aside = Aside("badges")

    def __enter__(self) -> Self:
        self._earned = self._aside.submit(self._earn)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._path.cancel()
        self._aside.__exit__(kind, error, trace)

    def go_on(self, path: CpuPath) -> None:
        """Run them, as `path` runs the required cells."""
        self._path.set_result(path)

    def results(self) -> tuple[CellResult, ...]:
        """One for each cell; `go_on` must have been called. Raises JobLost or InterpreterUnsupported."""
        return self._earned.result()

    def _earn(self) -> tuple[CellResult, ...]:
        traced, untraced = self._judgement.trace_capabilities(self._module, self._cells, stop=self._aside.stop)
        try:
            path = self._path.result()
        except CancelledError:
            return ()
        with one_thread():
            return (*path.capabilities(traced, stop=self._aside.stop), *untraced)
