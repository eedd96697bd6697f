"""Runs small test cases in Triton's interpreter while a GPU replays the others.

The interpreter checks properties that a run on a GPU does not show: every address read, races
between programs and threads, and compiler hints. It also runs rows longer than any usual block. So
a kernel that passes on a GPU also passes without one. The replay does not wait for the small cases
(`SmallCases`): they are traced, and their inputs drawn, while it runs.

At large cases only a few programs of each launch run. Some kernels launch differently for many
rows, so no small case reaches that code. A replay does not show reads past the end of a tensor,
reads of stale scratch memory, or inputs that are changed and restored. The replay compares the
answers.

Limits: cases of a user's task and large cases that take too long remain unchecked. The verdict then
says so. Few programs of large cases run (`interpreter/program_sample.py`). Programs with atomics
may wait forever for programs that do not run. Input values repeat after `ROWS` rows. Inputs that
are not drawn in time are drawn on demand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Self

from referee.candidate import Candidate, Traced, unless_rejected
from referee.cases import CaseData, beside_replay
from referee.checks.capabilities import trace_capabilities
from referee.checks.masked_lanes import check_masked_lanes, has_masked_lanes
from referee.concurrency import CancelToken, TaskScope, single_torch_thread, split_by_cost
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import UNDECIDED, Execution, InterpreterUnsupported
from referee.ops.spec import Cell, TensorSpec, rows_are_told_apart
from referee.plans.plan import LaunchPlan
from referee.plans.sampling import LaunchSpecialization, kernel_branches, launch_specializations
from referee.sandbox.zygote import MachineBusy
from referee.stages.trace import trace_cells
from referee.verdict import CellResult, Check, Rejection

if TYPE_CHECKING:
    from torch import Tensor

    from referee.ops.task import Task

TRACERS = 2


class SmallCases:
    """Small cases of one candidate; the end of the block cancels the work that is left."""

    def __init__(self, candidate: Candidate) -> None:
        cases = beside_replay(candidate.problem, candidate.seed)
        self.cells, self.capabilities = cases.required, cases.capabilities
        self._candidate = candidate
        self._lock = Lock()
        self._data: CaseData | None = None
        self._drawing = True
        self._scope = TaskScope("small", TRACERS + 2)

    def __enter__(self) -> Self:
        trace = partial(trace_cells, self._candidate, cancel=self._scope.cancel)
        halves = split_by_cost([1.0] * len(self.cells), self.cells, TRACERS)
        self._traces = [self._scope.submit(partial(trace, some)) for some in halves]
        cancel = self._scope.cancel
        few = partial(trace_capabilities, self._candidate, self.capabilities, cancel=cancel)
        self._shown = self._scope.submit(few)
        self._scope.submit(self._draw)
        return self

    def __exit__(self, *error: object) -> None:
        self._drawing = False
        self._scope.__exit__(*error)

    def traced(self) -> Traced:
        """The traced required cases, in order. Raises Rejected, or the error of the tracing."""
        return [pair for trace in self._traces for pair in unless_rejected(trace.result())]

    def traced_capabilities(self) -> Traced:
        """The capability cases that could be traced. Raises the error of the tracing."""
        return self._shown.result()[0]

    def data(self) -> CaseData:
        """The data of the cases, with all inputs drawn so far. This call ends the drawing ahead."""
        self._drawing = False
        return self._made()

    def _made(self) -> CaseData:
        with self._lock:
            task = self._candidate.problem.task("cpu")
            self._data = self._data or CaseData(task, self._candidate.seed)
            return self._data

    def _draw(self) -> None:
        data = self._made()
        with single_torch_thread():
            for cell in (*self.cells, *self.capabilities):
                if not self._drawing:
                    break
                data.inputs(cell)


ROWS = 64
"""Number of distinct rows of values. Drawing all rows would take longer than all other work."""
MOST_CELLS, FEW, ALIKE, BLOCK = 7, 16, 4.0, 128
"""Maximum number of cases; number of rows up to which the interpreter runs a case completely; ratio
of sides below which two shapes count as alike; elements of a block.
"""


def large_cases(traced: Traced, small: Traced, text: str) -> list[Traced]:
    """The cases of `traced` at which a few programs run, in three groups of about equal cost.

    They are the timed case and the largest case of each shape. Every case with a launch
    specialization that neither they nor the `small` cases have joins them.
    """
    choosing = kernel_branches(text)
    shapes = list[tuple[int, int]]()
    seen: set[LaunchSpecialization] = {
        way for _, plan in small for way in launch_specializations(plan, choosing, False)
    }
    chosen: list[tuple[Cell, LaunchPlan]] = []
    for cell, plan in sorted(
        traced, key=lambda pair: (pair[0].role != "bench", -prod(pair[0].inputs[0].shape))
    ):
        new = set(launch_specializations(plan, choosing, False)) - seen
        shape = cell.rows, cell.columns
        another = shape[0] > FEW and not any(_about(shape, one) for one in shapes)
        if new or (another and len(chosen) < MOST_CELLS):
            chosen.append((cell, plan))
            shapes.append(shape)
            seen |= new
    return [group for group in (chosen[:1], chosen[1::2], chosen[2::2]) if group]


def check_sampled_programs(
    path: CpuPath, group: Traced, *, cancel: CancelToken | None = None
) -> Rejection | None:
    """The first fault in a few programs of each launch, or None.

    `cancel` ends the run early. Raises JobLost or InterpreterUnsupported.
    """
    config, seed = path.configs[0], path.seed
    runs = [
        Execution(plan, _few(path.data.task, cell, seed), config=config, sample_seed=seed)
        for cell, plan in group
    ]
    answers = path.execute(runs, cancel)
    cell, last = group[len(answers) - 1][0], answers[-1]
    if not isinstance(last, Rejection):
        return None
    return replace(last, reason=f"at {cell.name}: {last.reason}")


def _few(task: Task, cell: Cell, seed: int) -> tuple[Tensor, ...]:
    """Inputs with only `ROWS` distinct rows."""
    rows, specs = cell.rows, (*cell.inputs, *cell.outputs)
    if rows > ROWS and rows_are_told_apart(rows, (spec.shape for spec in specs)):
        made = tuple(_shorter(spec, rows) for spec in specs)
        count = len(cell.inputs)
        cell = replace(cell, inputs=made[:count], outputs=made[count:])
    return task.inputs(cell, seed)


def _shorter(spec: TensorSpec, rows: int) -> TensorSpec:
    return replace(spec, shape=(ROWS, *spec.shape[1:])) if spec.shape[:1] == (rows,) else spec


def _about(one: tuple[int, int], other: tuple[int, int]) -> bool:
    near = all(1 / ALIKE < a / b < ALIKE for a, b in zip(one, other, strict=True))
    # A multiple of the block size fills its blocks; other widths leave a remainder.
    return near and (one[1] % BLOCK == 0) == (other[1] % BLOCK == 0)


USER_SECONDS = 5.0
"""Processor seconds for a user's task, of any size. Catalogue operations get more."""
WAITING_SECONDS = 2.0
AT_ONCE = 10
"""Maximum number of interpreter processes, also limited by the CPU count. Starting a process costs
as much as several cases, and compilation runs at the same time.
"""


@dataclass(frozen=True)
class InterpreterFindings:
    """Results of the interpreter, or the reason why it did not run."""

    cells: tuple[CellResult, ...] = ()
    rejection: Rejection | None = None
    why_not: str | None = None
    programs: int = 0
    """Number of large cases at which a few programs ran."""
    unseen: str | None = None
    """Reason why other large cases remain unchecked."""
    open_lanes: Check | None = None
    """The check of masked-off lanes; None if no load has any."""
    capabilities: tuple[CellResult, ...] = ()
    """Results at capability cases. Only faults count, because the replay decides the rest."""


def run_interpreter_checks(
    path: CpuPath,
    traced: Traced,
    large: Sequence[Traced] = (),
    waiting: Sequence[Traced] = (),
    *,
    capabilities: Traced = (),
    cancel: CancelToken | None = None,
) -> InterpreterFindings:
    """Run `traced` completely and a few programs of each case in `large`. Raises JobLost.

    Each process gets cases of one dtype. Programs of `waiting` cases use atomics and may wait for
    programs that do not run, so a timeout there is ignored. `cancel` ends everything early; the
    findings are then meaningless.

    A timeout rejects only kernels of catalogue operations, and only at small cases, because correct
    kernels finish in time.
    """
    if not traced:
        return InterpreterFindings(why_not="no cell of this task is small enough for it")
    excused = UNDECIDED if path.data.task.op.is_function else frozenset[str]()
    groups: dict[tuple[str, ...], list[tuple[Cell, LaunchPlan]]] = {}
    for cell, plan in traced:
        dtypes = tuple(spec.dtype for spec in (*cell.inputs, *cell.outputs))
        groups.setdefault(dtypes, []).append((cell, plan))
    opened = has_masked_lanes(path.text)
    halves = _halves(path, capabilities)
    beside = len(large) + len(waiting) + len(halves) + opened
    wanted = min(AT_ONCE, len(os.sched_getaffinity(0))) - beside
    shares = _shares(path, list(groups.values()), wanted)
    threads = min(len(shares) + beside, AT_ONCE)
    with TaskScope("look", threads, one_torch_thread=True) as scope:
        # The slowest jobs start first.
        picked = [scope.submit(partial(_programs, path, group, cancel)) for group in large]
        looked = [
            scope.submit(partial(path.required, share, among=group, cancel=cancel))
            for share, group in shares
        ]
        brief = replace(path, seconds=WAITING_SECONDS)
        patient = [scope.submit(partial(_programs, brief, group, cancel)) for group in waiting]
        lanes = scope.submit(partial(check_masked_lanes, path, traced)) if opened else None
        shown = [scope.submit(partial(_shown, path, share, cancel)) for share in halves]
        found, why_not = [], None
        for one in looked:
            try:
                found.append(one.result())
            except InterpreterUnsupported as error:
                why_not = str(error)
        results = {result.name: result for cells, _ in found for result in cells}
        cells = tuple(results[cell.name] for cell, _ in traced if cell.name in results)
        rejections = [rejection for _, rejection in found if rejection is not None]
        # A timeout or an unsupported kernel in one part does not excuse a failure in another part.
        rejection = min(rejections, key=lambda one: one.guard in UNDECIDED, default=None)
        programs = [one.result() for one in picked]
        every = (*programs, *(one.result() for one in patient))
        wrong = [one for one in every if one is not None and one.guard not in UNDECIDED]
        if wrong and (rejection is None or rejection.guard in UNDECIDED):
            rejection = wrong[0]
        if rejection is not None and rejection.guard not in excused:
            reason = f"in Triton's interpreter {rejection.reason}"
            return InterpreterFindings(cells, replace(rejection, reason=reason))
        try:
            depends = lanes.result() if lanes else None
        except InterpreterUnsupported as error:
            why_not = why_not or str(error)
        if why_not or rejection:
            return InterpreterFindings(why_not=why_not or (rejection.reason if rejection else None))
        unseen = next((one.reason for one in programs if one is not None), None)
        pairs = zip(large, programs, strict=True)
        looked_at = sum(len(group) for group, one in pairs if one is None)
        earned = tuple(result for one in shown for result in one.result())
        return InterpreterFindings(
            cells, programs=looked_at, unseen=unseen, open_lanes=depends, capabilities=earned
        )


def _shares(path: CpuPath, groups: Sequence[Traced], wanted: int) -> list[tuple[Traced, Traced]]:
    """Split the groups into about `wanted` shares of equal cost, each with its group."""
    efforts = [[path.effort(*one) for one in group] for group in groups]
    total = sum(map(sum, efforts))
    return [
        (share, group)
        for group, own in zip(groups, efforts, strict=True)
        for share in split_by_cost(own, group, max(1, round(wanted * sum(own) / total)))
    ]


def _halves(path: CpuPath, group: Traced) -> list[Traced]:
    return split_by_cost([path.effort(*one) for one in group], group, 2) if group else []


def _shown(path: CpuPath, share: Traced, cancel: CancelToken | None) -> tuple[CellResult, ...]:
    """The results of `CpuPath.capabilities`, or none if the interpreter cannot run the kernel."""
    try:
        return path.capabilities(share, cancel=cancel)
    except InterpreterUnsupported:
        return ()


def _programs(path: CpuPath, group: Traced, cancel: CancelToken | None) -> Rejection | None:
    """As `check_sampled_programs`. An unsupported kernel or a busy machine rejects nothing here."""
    try:
        return check_sampled_programs(path, group, cancel=cancel)
    except (InterpreterUnsupported, MachineBusy) as error:
        return Rejection("correct", "timeout", str(error))
