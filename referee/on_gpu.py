"""A candidate on a GPU: every cell replayed while small ones run in the interpreter, then time.

Kernels are compiled as soon as a trace tells what is launched. The CPU compiles and interprets while the GPU checks what is compiled.
Nothing runs beside the timing. What the GPU finds is told before what the interpreter finds, so that a verdict does not depend on what was
ready first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from referee.aside import Aside
from referee.beside import USER_SECONDS, Seen, look
from referee.compiling.binaries import Binaries, unread_lines
from referee.compiling.compile import effort
from referee.compiling.compile_ahead import CompileAhead
from referee.device.checking import Checking
from referee.device.configurations import FEW_CONFIGS, telling, usable_configurations
from referee.device.gpu import Checked, Replayer
from referee.device.jobs import CellJob, Prepared
from referee.device.prepare import settle
from referee.judgement import Judgement, Level, Traced, atomic, autotuned, cell_jobs, stop, unless_rejected
from referee.large_cells import large
from referee.measuring.measurement import TimingOptions
from referee.open_lanes import note
from referee.ops.fresh_badges import fresh_badges
from referee.ops.fresh_cells import fresh_cells
from referee.ops.spec import Cell
from referee.plans.plan import Launch, LaunchPlan
from referee.reading.kernels import KernelModule
from referee.replayed_badges import ReplayedBadges
from referee.report import Rejected, Report
from referee.sandbox.workers import Workers
from referee.small_cells import SmallCells
from referee.subject import capabilities, partition_by_rows, required
from referee.verdict import Rejection, Verdict


@dataclass(frozen=True)
class OnGpu:
    """One candidate, with what it is judged by. Methods raise Rejected when it falls."""

    judgement: Judgement
    module: KernelModule
    replayer: Replayer
    interpreters: Workers
    seed: int

    @property
    def _report(self) -> Report:
        return self.judgement.report

    def verdict(self, level: Level, options: TimingOptions | None) -> Verdict:
        """Every stage there is, up to `level`."""
        report, subject = self._report, self.judgement.subject
        assert subject.name is not None
        cells = subject.cells("gpu")
        processors = self.judgement.target.properties.multi_processor_count
        wanted = [*required(cells), *fresh_cells(subject.op, self.seed, gpu=True, multiprocessors=processors)]
        usual, many = (wanted, []) if subject.op.origin == "user" else partition_by_rows(wanted)
        earning = fresh_badges(subject.op, capabilities(cells), self.seed, gpu=True)
        ahead = self.judgement.ahead(self.module)
        with (
            Aside("look") as aside,
            SmallCells(self.judgement, self.module, self.seed) as small,
            ReplayedBadges(self.judgement, self.module, self.replayer, earning, ahead, seed=self.seed) as badges,
            # The first to end: badges may wait for what it compiles.
            ahead,
        ):
            traced = self._traced(usual, many, ahead)
            candidate = Prepared(subject.name, (), atomic(self.module, traced))
            # First calls are checked behind all cells of a request: which of them fails first may not depend on what is compiled when.
            whole = any(autotuned(plan) or _compares(plan) for _, plan in traced)
            # With atomics it counts what the compiler left of them.
            look = partial(self._look, traced, small, stop=aside.stop)
            seen = None if whole or candidate.atomics else aside.submit(look)
            prepared = self._settled(traced, candidate, ahead) if whole else self._checked_as_compiled(traced, candidate, ahead, badges)
            badges.go_on(prepared)
            # Which configurations can be launched is known only now.
            first = prepared.jobs[0]
            unread = unread_lines(kernel for job in prepared.jobs for kernel in job.binaries.values())
            configs = usable_configurations(first.plan, first.binaries, FEW_CONFIGS)
            seen = seen or aside.submit(partial(look, configs=configs, unread=unread))
            with report.during("correct"):
                self._take_seen(seen.result())
                self.judgement.note_traced([*traced, *small.traced()])
                interpreted = [] if seen.result().why_not else small.cells
                report.passes("judged_shapes", _reach([cell for cell, _ in traced], interpreted))
                report.cells = (*report.cells, *badges.results())
        if level == "correct" or prepared.bench is None:
            why = "the level asked for is correct" if level == "correct" else "the task has no timed cell"
            reason = f"{_passed(report)} cells agree with float64 when replayed on {report.environment['device']}; not timed: {why}"
            return report.ended("correct", reason, unreached=why)
        with report.during("timing"):
            timing = unless_rejected(self.replayer.time(prepared, seed=self.seed, options=options))
        report.timing = timing.to_json()
        report.passes("timing", f"{timing.rounds} rounds; the outputs of all were checked")
        return report.ended(timing.decision, timing.reason)

    def _traced(self, usual: Sequence[Cell], many: Sequence[Cell], ahead: CompileAhead) -> Traced:
        """In one worker where CUDA takes every grid, cells of `many` rows among the others."""
        judgement, module, cells = self.judgement, self.module, [*_longest_rows_first(usual), *many]
        with self._report.during("trace"), ahead.listening(cells) as early:
            plans = judgement.traced(module, cells, early=early)
        if isinstance(plans, Rejection) and plans.guard == "launch_limits":
            return [*judgement.trace(module, usual), *judgement.trace_many_rows(module, many)]
        plan_of = dict(unless_rejected(plans))
        traced = [(cell, plan_of[cell]) for cell in (*usual, *many)]
        judgement.note_traced(traced)
        return traced

    def _settled(self, traced: Traced, candidate: Prepared, ahead: CompileAhead) -> Prepared:
        """Compile everything, settle autotuned launches, then check every cell with what was chosen."""
        compiled = self.judgement.compile(self.module, [plan for _, plan in traced], ahead)
        with self._report.during("correct"):
            jobs = tuple(cell_jobs(traced, compiled))
            prepared = unless_rejected(settle(self.replayer, replace(candidate, jobs=jobs), seed=self.seed))
            if prepared.choice:
                self._report.passes("autotune", f"configuration by step: {dict(prepared.choice)}")
            self._take(self.replayer.check(prepared, seed=self.seed))
        return prepared

    def _checked_as_compiled(self, traced: Traced, candidate: Prepared, ahead: CompileAhead, badges: ReplayedBadges) -> Prepared:
        """Compile, and check each cell as soon as its kernels are there: those that take longest to compile last."""
        order = sorted(range(len(traced)), key=lambda number: effort(traced[number][1]))
        checking = Checking(self.replayer, candidate, [cell for cell, _ in traced], order, seed=self.seed)
        compiled: dict[int, Binaries] = {}
        with closing(self.judgement.compiled_in_parts(self.module, [plan for _, plan in traced], ahead)) as parts:
            while True:
                with self._report.during("compile"):
                    part = next(parts, None)
                if part is None:
                    break
                ready = unless_rejected(part)
                compiled |= ready
                with self._report.during("correct"):
                    checking.take({number: CellJob(*traced[number], binaries.found) for number, binaries in ready.items()})
                if checking.passing:
                    badges.go_on(candidate)
        binaries = [compiled[number] for number in range(len(traced))]
        self.judgement.note_compiled(binaries)
        self._take(checking.found())
        return replace(candidate, jobs=tuple(cell_jobs(traced, binaries)))

    def _take(self, checked: Checked) -> None:
        report = self._report
        report.add(checked.checks)
        report.cells = checked.cells
        stop(checked.rejection)
        report.passes("kernel_error", "no launch failed")
        report.passes("same_plan", "the plan that is timed is the plan that was checked")

    def _look(
        self, traced: Traced, beside: SmallCells, configs: tuple[int, ...] = (0,), unread: frozenset[int] = frozenset(), *, stop: int
    ) -> Seen:
        """What the interpreter says of small cells, and of a few programs at large ones. Notes nothing in the report."""
        from referee.cpu_path import ROUNDS, SECONDS, CpuPath

        small = beside.traced()
        task, mixed, text = self.judgement.subject.task("cpu"), atomic(self.module, small), self.module.text
        seconds, rounds = (USER_SECONDS, 1) if task.op.origin == "user" else (SECONDS, ROUNDS)
        # A replay runs twice everywhere; here that shows what depends on the order of programs, and few cells show it.
        again = beside.cells if task.op.origin == "user" else telling(beside.cells, self.seed)
        once = frozenset(cell.name for cell in beside.cells) - {cell.name for cell in again}
        path = CpuPath(self.interpreters, task, text, mixed, self.seed, configs, {}, seconds, rounds, unread, once, beside.drawn())
        groups = [] if task.op.origin == "user" else large(traced, small, text)
        plain, waiting = (self._of_atomics(groups, wanted) for wanted in (False, True))
        return look(path, small, plain, waiting, stop=stop)

    def _of_atomics(self, groups: Sequence[Sequence[tuple[Cell, LaunchPlan]]], wanted: bool) -> list[Traced]:
        """Those whose kernels use atomics, or those whose do not."""
        return [some for group in groups if (some := [pair for pair in group if atomic(self.module, [pair]) == wanted])]

    def _take_seen(self, seen: Seen) -> None:
        report = self._report
        if seen.why_not:
            report.skips("interpreted", seen.why_not)
            report.skips("out_of_bounds", f"the guard bands catch writes; only the interpreter looks at addresses: {seen.why_not}")
            report.reserve(f"nobody looked at what is read, nor for races: {seen.why_not}")
            return
        if seen.rejection:
            report.cells = (*report.cells, *seen.cells)
            raise Rejected(seen.rejection)
        if seen.open_lanes is not None:
            note(report, seen.open_lanes)
        report.passes("interpreted", f"{len(seen.cells)} small cells agree with float64 in Triton's interpreter too")
        if seen.programs:
            report.passes("programs", f"a few programs at each of {seen.programs} large cells, looked at in Triton's interpreter")
        if seen.unseen:
            report.reserve(f"nobody looked at what is read, nor for races, at some large cells: {seen.unseen}")
        report.passes("out_of_bounds", f"every address read or written lies in a buffer, at {len(seen.cells)} cells in the interpreter")


def _longest_rows_first(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell, which is told of what goes wrong at all, then those whose kernels are likely to take longest to compile."""
    return [*cells[:1], *sorted(cells[1:], key=_row_length, reverse=True)]


def _row_length(cell: Cell) -> int:
    return max((spec.shape[-1] for spec in cell.inputs if spec.shape), default=0)


def _reach(replayed: Sequence[Cell], interpreted: Sequence[Cell]) -> str:
    """How far the shapes reach at which a candidate is judged."""
    rows = max((cell.inputs[0].shape[0] for cell in replayed if len(cell.inputs[0].shape) > 1), default=1)
    columns, more = (max(map(_row_length, cells), default=0) for cells in (replayed, interpreted))
    wider = f"; of up to {more:,} in Triton's interpreter, a few rows at a time" if more > columns else ""
    return f"replayed with up to {rows:,} rows, and with rows of up to {columns:,} elements{wider}; nothing is known beyond"


def _passed(report: Report) -> int:
    return sum(cell.status == "pass" and cell.role != "capability" for cell in report.cells)


def _compares(plan: LaunchPlan) -> bool:
    """Whether Triton compares configurations at the first call, be it that only one of them is left or all are alike."""
    return any(isinstance(step, Launch) and step.tuning is not None for step in plan.steps)
