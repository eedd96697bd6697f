"""Capability cases: what a kernel need not pass, and what the verdict says that it can do.

They are prepared (traced and compiled) all at once, or one by one if that fails. All share one time
budget: a case that hangs neither delays the verdict for long nor costs the others their result. A
case without an answer in time is skipped, not failed: a busy machine says nothing about the kernel.
They run next to the required cases, in Triton's interpreter or on a GPU. A replay starts only after
a required case has passed, so a kernel that fails at once costs no time here.

Wrong values cost only the capability. Races, results that differ between runs, changed inputs and
accesses outside every tensor are faults at every case (`unsound`).

Limits: a kernel that assumes contiguous rows leaves its tensors if rows are padded. One with 32-bit
offsets does so beyond 2^31 elements. Saved files refuse such inputs, so addresses do not count
there. On a GPU only changed bytes are visible, so changed inputs do not count there either.
Torch-free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from math import prod
from typing import Self, TypeVar

from referee.candidate import Candidate, Traced
from referee.case_runs import TIMEOUT, out_of_time
from referee.compiling.compile import CompileAhead, compile_plans
from referee.concurrency import CancelToken, TaskScope
from referee.cpu_path import CpuPath
from referee.gpu.jobs import CompiledCandidate, ReplayJob, replay_jobs
from referee.gpu.replayer import Replayer
from referee.ops.cells import contiguous_strides
from referee.ops.spec import Cell, TensorSpec
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import MachineBusy
from referee.stages.trace import trace_cells
from referee.verdict import CellResult, Rejection, Stage

Item = TypeVar("Item")
Made = TypeVar("Made")

TRACE_SECONDS, COMPILE_SECONDS = 20.0, 40.0
"""Seconds for all capability cases of a candidate together, so that they do not delay the verdict.
"""
LEAST_SECONDS = 1.0
"""Seconds below which a timeout would say nothing about the candidate."""
WALL_CLOCK_FACTOR = 1.0
BITS, CHANGES = "not_deterministic", "input_mutated"
ADDRESSES = frozenset({"out_of_bounds", "guard_band"})
OFFSETS_END = 1 << 31


def prepare_capabilities(
    attempt: Callable[[list[Item], float], Sequence[Made] | Rejection],
    items: Sequence[Item],
    cells: Sequence[Cell],
    seconds: float,
) -> tuple[list[Made], list[CellResult]]:
    """Prepare the items, one for each of `cells`. Returns the prepared items and a result for each
    failed cell.

    `attempt` gets the items and a time limit in seconds. Each attempt gets at most half of the
    remaining `seconds`, so that a case that hangs leaves time for the others.
    """
    if not items:
        return [], []
    ends = time.monotonic() + seconds
    try:
        whole = attempt(list(items), seconds / 2)
    except MachineBusy as busy:
        return [], [out_of_time(cell, str(busy)) for cell in cells]
    if not isinstance(whole, Rejection):
        return list(whole), []
    if len(items) == 1:
        return [], [_failed(cells[0], whole)]
    made: list[Made] = []
    results: list[CellResult] = []
    for item, cell in zip(items, cells, strict=True):
        left = round((ends - time.monotonic()) / 2, 1)
        if left < LEAST_SECONDS:
            results.append(out_of_time(cell, "not tried: preparing the other cells took too long"))
            continue
        try:
            found = attempt([item], left)
        except MachineBusy as busy:
            results.append(out_of_time(cell, str(busy)))
            continue
        if isinstance(found, Rejection):
            results.append(_failed(cell, found))
        else:
            made += found
    return made, results


def _failed(cell: Cell, why: Rejection) -> CellResult:
    if why.guard == TIMEOUT:
        return out_of_time(cell, why.reason)
    return CellResult(cell.name, cell.role, "fail", detail=why.reason)


def trace_capabilities(
    candidate: Candidate, cells: Sequence[Cell], *, cancel: CancelToken | None = None
) -> tuple[list[tuple[Cell, LaunchPlan]], list[CellResult]]:
    """The capability cells that can be traced, and a failed result for each of the others.

    The report does not change. `cancel` ends the tracing early; the results are then meaningless.
    """

    def attempt(some: Sequence[Cell], seconds: float) -> Traced | Rejection:
        found = trace_cells(
            candidate, some, seconds=seconds, patience=WALL_CLOCK_FACTOR, cancel=cancel
        )
        if isinstance(found, Rejection) or len(found) == len(some):
            return found
        assert candidate.domain is not None
        lost = next(cell for cell in some if cell in candidate.domain.refused)
        return Rejection("trace", "trace_error", candidate.domain.refused[lost])

    return prepare_capabilities(attempt, cells, cells, TRACE_SECONDS)


def compile_capabilities(
    candidate: Candidate, traced: Traced, ahead: CompileAhead, *, cancel: CancelToken
) -> tuple[list[ReplayJob], list[CellResult]]:
    """As `trace_capabilities`, for compiling. Kernels compiled `ahead` are reused."""

    def attempt(some: Traced, seconds: float) -> list[ReplayJob] | Rejection:
        found = compile_plans(
            candidate.workers,
            candidate.module,
            [plan for _, plan in some],
            candidate.target,
            candidate.cache,
            seconds=seconds,
            patience=WALL_CLOCK_FACTOR,
            ahead=ahead,
            cancel=cancel,
        )
        return found if isinstance(found, Rejection) else replay_jobs(some, found)

    return prepare_capabilities(attempt, traced, [cell for cell, _ in traced], COMPILE_SECONDS)


def interpret_capabilities(
    candidate: Candidate, cells: Sequence[Cell], path: CpuPath, cancel: CancelToken
) -> tuple[CellResult, ...]:
    """One result for each case, without a GPU. `path` also runs the required cases, so both run
    under the same settings.

    `cancel` as in `trace_capabilities`. Raises JobLost or InterpreterUnsupported.
    """
    traced, untraced = trace_capabilities(candidate, cells, cancel=cancel)
    return (*path.capabilities(traced, cancel=cancel), *untraced)


class ReplayedCapabilities:
    """Capability cases on a GPU, next to the required ones; the end of the block cancels them."""

    def __init__(
        self,
        candidate: Candidate,
        replayer: Replayer,
        cells: Sequence[Cell],
        ahead: CompileAhead,
    ) -> None:
        self._candidate, self._replayer, self._cells = candidate, replayer, cells
        self._ahead = ahead
        self._compiled: Future[CompiledCandidate] = Future()
        self._scope = TaskScope("capabilities")

    def __enter__(self) -> Self:
        if self._cells:
            self._replayer.expect_capabilities()
        self._earned = self._scope.submit(self._earn)
        return self

    def __exit__(self, *error: object) -> None:
        self._compiled.cancel()
        self._scope.__exit__(*error)

    def go_on(self, compiled: CompiledCandidate) -> None:
        """Start the replay, because `compiled` has passed a required case. Later calls do nothing."""
        if not self._compiled.done():
            self._compiled.set_result(compiled)

    def results(self) -> tuple[CellResult, ...]:
        """One result for each case. Call `go_on` first. Raises ReplayerError or JobLost."""
        return self._earned.result()

    def _earn(self) -> tuple[CellResult, ...]:
        candidate, cancel = self._candidate, self._scope.cancel
        traced, untraced = trace_capabilities(candidate, self._cells, cancel=cancel)
        jobs, uncompiled = compile_capabilities(candidate, traced, self._ahead, cancel=cancel)
        try:
            compiled = self._compiled.result()
        except CancelledError:
            return ()
        found = self._replayer.check(replace(compiled, jobs=tuple(jobs)), seed=candidate.seed)
        return (*found.cells, *untraced, *uncompiled)


def unsound(
    cells: Iterable[Cell], results: Sequence[CellResult], *, addresses_seen: bool
) -> Rejection | None:
    """The rejection for the first fault in the results of capability cases, or None.

    `addresses_seen` says whether every address was checked, as the interpreter does.
    """
    known = {cell.name: cell for cell in cells}
    for result in results:
        cell = known.get(result.name)
        if result.status != "fail" or cell is None or cell.role != "capability":
            continue
        usual = all(map(_usual, (*cell.inputs, *cell.outputs)))
        faults = {BITS, *((CHANGES,) if usual or addresses_seen else ())}
        if result.guard in (faults | ADDRESSES if usual else faults):
            stage: Stage = "correct" if result.guard in ADDRESSES else "honest"
            reason = f"at {result.name}, a capability case: {result.detail}"
            return Rejection(stage, result.guard, reason)
    return None


def _usual(spec: TensorSpec) -> bool:
    strides = zip(spec.shape, spec.strides, contiguous_strides(spec.shape), strict=True)
    dense = all(size <= 1 or stride == wanted for size, stride, wanted in strides)
    return dense and spec.offset == 0 and prod(spec.shape) < OFFSETS_END
