"""The check on a GPU: every case is replayed, small ones are interpreted. Timing follows.

Compilation starts as soon as a trace shows a launch. The CPU compiles and interprets while the GPU
checks. Findings of the GPU are reported before those of the interpreter, so that a verdict does not
depend on which was ready first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from referee.candidate import Candidate, Level, Traced, raise_rejected, unless_rejected
from referee.cases import CaseList, replayed
from referee.checks import batch_invariance
from referee.checks.capabilities import ReplayedCapabilities, unsound
from referee.checks.interpreter_checks import (
    USER_SECONDS,
    InterpreterFindings,
    SmallCases,
    large_cases,
    run_interpreter_checks,
)
from referee.checks.masked_lanes import note
from referee.checks.size_decisions import SizeDecisions
from referee.compiling.binaries import Binaries, unread_lines
from referee.compiling.compile import CompileAhead, effort
from referee.concurrency import CancelToken, TaskScope
from referee.cpu_path import ROUNDS, SECONDS, CpuPath
from referee.gpu.compile_candidate import choose_autotune_config
from referee.gpu.jobs import Checked, CompiledCandidate, ReplayJob, replay_jobs
from referee.gpu.ordered_check import OrderedCheck
from referee.gpu.replayer import Replayer
from referee.ops.spec import Cell
from referee.plans.autotune import FEW_CONFIGS, representative_cells, usable_configurations
from referee.plans.plan import LaunchPlan
from referee.problem import partition_by_rows
from referee.report import Rejected, Report
from referee.sandbox.zygote import Workers
from referee.stages.compile import compile_ahead, compile_launches, compile_parts, note_compiled
from referee.stages.time import timed
from referee.stages.trace import (
    note_domain,
    note_traced,
    trace_cells,
    trace_many_rows,
    trace_required,
)
from referee.timing.measurement import TimingOptions
from referee.verdict import Check, Rejection, Verdict

MOST_DECIDED = 1 << 26
"""Maximum number of elements of a case that is made for a decision on a size."""


@dataclass(frozen=True)
class OnGpu:
    """One candidate and the processes that check it. Methods raise Rejected if it fails."""

    candidate: Candidate
    replayer: Replayer
    interpreters: Workers

    @property
    def _report(self) -> Report:
        return self.candidate.report

    def verdict(self, level: Level, options: TimingOptions | None) -> Verdict:
        """Run every stage up to `level`."""
        report, problem = self._report, self.candidate.problem
        processors = self.candidate.target.properties.multi_processor_count
        wide = problem.name is not None and problem.name.wide
        cases = replayed(problem, self.candidate.seed, multiprocessors=processors, wide=wide)
        prepared = self._checked(cases)
        if level == "full" and prepared.bench is not None:
            return timed(self.candidate, prepared, self.replayer, options)
        untimed = level == "correct"
        why = "the requested level is correct" if untimed else "the task has no timed cell"
        where = f"when replayed on {report.environment['device']}"
        reason = f"{_passed(report)} cases agree with float64 {where}; not timed: {why}"
        return report.ended("correct", reason, unreached=why)

    def _checked(self, cases: CaseList) -> CompiledCandidate:
        """Trace, compile and check: the candidate with its kernels and chosen configurations."""
        candidate, report, problem = self.candidate, self._report, self.candidate.problem
        assert problem.name is not None
        usual, many = cases.required, list[Cell]()
        if not problem.op.is_function:
            usual, many = partition_by_rows(usual)
        ahead = compile_ahead(candidate)
        with (
            TaskScope("interpret") as scope,
            SmallCases(candidate) as small,
            ReplayedCapabilities(candidate, self.replayer, cases.capabilities, ahead) as optional,
            # This scope ends first, because capability cases may wait for its kernels.
            ahead,
        ):
            traced = self._traced(usual, many, ahead)
            decisions = SizeDecisions(candidate, MOST_DECIDED)
            with report.during("trace"):
                traced = [*traced, *decisions.cases(traced)]
            note_domain(candidate, [*usual, *many])
            compiled = CompiledCandidate(problem.name, (), candidate.atomic(traced))
            # First calls are checked after all cells of a request, so that the first failure does
            # not depend on compilation order.
            whole = any(plan.has_configs or plan.is_autotuned for _, plan in traced)
            # Kernels with atomics wait for compilation, because the race check needs the atomics
            # that the compiler kept.
            interpret = partial(self._interpreter_findings, traced, small, cancel=scope.cancel)
            seen = None if whole or compiled.atomics else scope.submit(interpret)
            if whole:
                prepared = self._settled(traced, compiled, ahead)
            else:
                prepared = self._checked_as_compiled(traced, compiled, ahead, optional)
            optional.go_on(prepared)
            # Only now is it known which configurations can be launched.
            first = prepared.jobs[0]
            unread = unread_lines(one for job in prepared.jobs for one in job.binaries.values())
            configs = usable_configurations(first.plan, first.binaries, FEW_CONFIGS)
            seen = seen or scope.submit(partial(interpret, configs=configs, unread=unread))
            with report.during("correct"):
                self._take_findings(seen.result())
                note_traced(candidate, len(traced), f", and {len(small.cells)} small ones")
                note_domain(candidate, [*usual, *many, *small.cells])
                interpreted = [] if seen.result().why_not else small.cells
                report.passes("judged_shapes", _reach([cell for cell, _ in traced], interpreted))
                earned = optional.results()
                report.cells = (*report.cells, *earned)
                raise_rejected(unsound(cases.capabilities, earned, addresses_seen=False))
                shown = seen.result().capabilities
                raise_rejected(unsound(small.capabilities, shown, addresses_seen=True))
                decisions.note([*traced, *small.traced()], cases.capabilities)
                self._invariance(small, configs, unread, asked=not seen.result().why_not)
        return prepared

    def _traced(self, usual: Sequence[Cell], many: Sequence[Cell], ahead: CompileAhead) -> Traced:
        """Trace all cells in one worker, or those of `many` rows alone if a grid is too large."""
        candidate, cells = self.candidate, [*_longest_rows_first(usual), *many]
        with self._report.during("trace"), ahead.listening(cells) as early:
            plans = trace_cells(candidate, cells, early=early)
        if isinstance(plans, Rejection) and plans.guard == "launch_limits":
            return [*trace_required(candidate, usual), *trace_many_rows(candidate, many)]
        plan_of = dict(unless_rejected(plans))
        traced = [(cell, plan_of[cell]) for cell in (*usual, *many) if cell in plan_of]
        note_traced(candidate, len(traced))
        return traced

    def _settled(
        self, traced: Traced, compiled: CompiledCandidate, ahead: CompileAhead
    ) -> CompiledCandidate:
        """Compile everything, choose autotuned configurations, then check every cell with them."""
        kernels = compile_launches(self.candidate, [plan for _, plan in traced], ahead)
        with self._report.during("correct"):
            compiled = replace(compiled, jobs=tuple(replay_jobs(traced, kernels)))
            seed = self.candidate.seed
            prepared = unless_rejected(choose_autotune_config(self.replayer, compiled, seed=seed))
            if prepared.choice:
                self._report.passes("autotune", f"configuration by step: {dict(prepared.choice)}")
            self._take(self.replayer.check(prepared, seed=seed))
        return prepared

    def _checked_as_compiled(
        self,
        traced: Traced,
        compiled: CompiledCandidate,
        ahead: CompileAhead,
        capability_checks: ReplayedCapabilities,
    ) -> CompiledCandidate:
        """Check each cell as soon as its kernels are compiled, the slowest ones last."""
        order = sorted(range(len(traced)), key=lambda number: effort(traced[number][1]))
        cells, seed = [cell for cell, _ in traced], self.candidate.seed
        checking = OrderedCheck(self.replayer, compiled, cells, order, seed=seed)
        kernels: dict[int, Binaries] = {}
        with closing(compile_parts(self.candidate, [plan for _, plan in traced], ahead)) as parts:
            while True:
                with self._report.during("compile"):
                    part = next(parts, None)
                if part is None:
                    break
                ready = unless_rejected(part)
                kernels |= ready
                jobs = {at: ReplayJob(*traced[at], one.found) for at, one in ready.items()}
                with self._report.during("correct"):
                    checking.take(jobs)
                if checking.passing:
                    capability_checks.go_on(compiled)
        binaries = [kernels[number] for number in range(len(traced))]
        note_compiled(self.candidate, binaries, [plan for _, plan in traced])
        self._take(checking.found())
        return replace(compiled, jobs=tuple(replay_jobs(traced, binaries)))

    def _take(self, checked: Checked) -> None:
        report = self._report
        report.add(checked.checks)
        report.cells = checked.cells
        raise_rejected(checked.rejection)
        report.passes("kernel_error", "no launch failed")
        report.passes("same_plan", "the plan that is timed is the plan that was checked")

    def _invariance(
        self, small: SmallCases, configs: tuple[int, ...], unread: frozenset[int], *, asked: bool
    ) -> None:
        """Report batch invariance, which the interpreter checks."""
        candidate = self.candidate
        if not candidate.batch_invariant:
            # The check would make every verdict on a GPU slower.
            why = "not looked at during a replay; --batch-invariant asks for it"
            found = Check(batch_invariance.CHECK, "skipped", why)
        elif candidate.problem.op.is_function or not asked:
            found = batch_invariance.unknown("Triton's interpreter was not asked")
        else:
            alone = batch_invariance.parts_of(small.cells, candidate.seed, long=True)
            pairs = unless_rejected(trace_cells(candidate, [part.cell for part in alone]))
            path = self._path(small, configs, unread)
            plans = dict([*small.traced(), *pairs])
            found = batch_invariance.check(path, alone, plans, required=True)
        if candidate.batch_invariant:
            raise_rejected(batch_invariance.demanded(found))
        self._report.add([found])

    def _interpreter_findings(
        self,
        traced: Traced,
        beside: SmallCases,
        configs: tuple[int, ...] = (0,),
        unread: frozenset[int] = frozenset(),
        *,
        cancel: CancelToken,
    ) -> InterpreterFindings:
        """Run small cases, and programs of large ones, in the interpreter; no report."""
        small, shown = beside.traced(), beside.traced_capabilities()
        path = self._path(beside, configs, unread)
        groups = [] if path.data.task.op.is_function else large_cases(traced, small, path.text)
        plain, waiting = (self._of_atomics(groups, wanted) for wanted in (False, True))
        return run_interpreter_checks(
            path, small, plain, waiting, capabilities=shown, cancel=cancel
        )

    def _path(
        self, beside: SmallCases, configs: tuple[int, ...], unread: frozenset[int]
    ) -> CpuPath:
        """The settings for small cases in the interpreter."""
        small = [*beside.traced(), *beside.traced_capabilities()]
        task = self.candidate.problem.task("cpu")
        seconds, rounds = (USER_SECONDS, 1) if task.op.is_function else (SECONDS, ROUNDS)
        # A replay runs every case twice. Here the second run shows order dependence, and few cases
        # show it.
        again = beside.cells
        if not task.op.is_function:
            again = representative_cells(beside.cells, self.candidate.seed)
        every = frozenset(cell.name for cell in (*beside.cells, *beside.capabilities))
        once = every - {cell.name for cell in again}
        return CpuPath(
            workers=self.interpreters,
            data=beside.data(),
            text=self.candidate.module.text,
            atomic=self.candidate.atomic(small),
            configs=configs,
            seconds=seconds,
            rounds=rounds,
            unread=unread,
            once=once,
        )

    def _of_atomics(
        self, groups: Sequence[Sequence[tuple[Cell, LaunchPlan]]], wanted: bool
    ) -> list[Traced]:
        """The groups without pairs of the other kind: with atomics if `wanted`, or without."""
        return [
            some
            for group in groups
            if (some := [pair for pair in group if self.candidate.atomic([pair]) == wanted])
        ]

    def _take_findings(self, seen: InterpreterFindings) -> None:
        report = self._report
        if seen.why_not:
            report.skips("interpreted", seen.why_not)
            left = "the guard bands catch writes; only the interpreter looks at addresses"
            report.skips("out_of_bounds", f"{left}: {seen.why_not}")
            report.reserve(f"reads and races were not checked: {seen.why_not}")
            return
        if seen.rejection:
            report.cells = (*report.cells, *seen.cells)
            raise Rejected(seen.rejection)
        if seen.open_lanes is not None:
            note(report, seen.open_lanes)
        count = len(seen.cells)
        cases = f"{count} small cases agree with float64 in Triton's interpreter too"
        report.passes("interpreted", cases)
        if seen.programs:
            some = f"a few programs at each of {seen.programs} large cases"
            report.passes("programs", f"{some}, checked in Triton's interpreter")
        if seen.unseen:
            report.reserve(f"reads and races were not checked at some large cases: {seen.unseen}")
        inside = "every address read or written lies in a buffer"
        report.passes("out_of_bounds", f"{inside}, at {count} cases in the interpreter")


def _longest_rows_first(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell, which finds most failures, then those that compile longest."""
    return [*cells[:1], *sorted(cells[1:], key=attrgetter("width"), reverse=True)]


def _reach(replayed: Sequence[Cell], interpreted: Sequence[Cell]) -> str:
    rows = max((cell.rows for cell in replayed), default=1)
    columns = max((cell.width for cell in replayed), default=0)
    more = max((cell.width for cell in interpreted), default=0)
    wider = f"; of up to {more:,} in Triton's interpreter, a few rows at a time"
    reach = f"up to {rows:,} rows, and with rows of up to {columns:,} elements"
    end = "nothing is known beyond"
    return f"replayed with {reach}{wider if more > columns else ''}; {end}"


def _passed(report: Report) -> int:
    return sum(cell.status == "pass" and cell.role != "capability" for cell in report.cells)
