"""One candidate on its way through the stages."""

from __future__ import annotations

import math
import secrets
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from referee.badges import each_badge
from referee.beside import SECONDS as INTERPRETER_SECONDS
from referee.beside import Seen, look, small_cells
from referee.binaries import Binaries
from referee.checking import Checking
from referee.compile import PATIENCE, SECONDS, Part, compile_in_parts, compile_plans, effort
from referee.configurations import usable_configurations
from referee.fresh_cells import fresh_cells, with_fresh_layouts
from referee.gpu import Checked, Replayer
from referee.jobs import CellJob, Prepared
from referee.kernels import KernelError, KernelModule, extract
from referee.measurement import TimingOptions
from referee.ops.spec import Cell
from referee.plan import Launch, LaunchPlan
from referee.prepare import settle
from referee.report import Rejected, Report
from referee.sampling import compile_sample
from referee.screen import screen
from referee.subject import Subject, capabilities, feasible, partition_by_rows, required
from referee.target import Target
from referee.trace import trace
from referee.verdict import CellResult, Rejection, Verdict
from referee.workers import Workers

T = TypeVar("T")
Level = Literal["screen", "compile", "correct", "full"]
Traced = list[tuple[Cell, LaunchPlan]]

SEED_BITS = 63
# What only earns a badge may not hold up a verdict for long: all cells of a candidate share these.
CAPABILITY_TRACE_SECONDS = 20.0
CAPABILITY_COMPILE_SECONDS = 40.0
# As many multiprocessors as the smallest card of today has: there a few rows or tiles are more than the programs that go through them.
FEW_MULTIPROCESSORS, LARGE_TILE = 4, 4096


class Judgement:
    """Stages on one candidate. Every method raises Rejected when the candidate falls there."""

    def __init__(self, report: Report, source: str, subject: Subject, target: Target, workers: Workers, cache: Path | None) -> None:
        self.report, self.source, self.subject, self.target = report, source, subject, target
        self._workers, self._kept = workers, cache / "kernels" if cache else None

    def screen(self, *, host_code: bool = True) -> KernelModule:
        """Read the text; the judge's own cut of its kernels. Without `host_code` only the kernels are looked at."""
        with self.report.during("screen"):
            if host_code:
                checks, rejection = screen(self.source)
                self.report.add(checks)
                _stop(rejection)
            try:
                return extract(self.source)
            except KernelError as error:
                raise Rejected(Rejection("screen", error.guard, str(error))) from None

    def trace(self, module: KernelModule, cells: Sequence[Cell]) -> Traced:
        """Run the candidate's Python, without values, for every cell."""
        with self.report.during("trace"):
            plans = _unless_rejected(trace(self._workers, self.source, cells, self.target, module))
        self._note_traced(len(plans))
        return list(zip(cells, plans, strict=True))

    def _note_traced(self, cells: int) -> None:
        self.report.passes("trace", f"{cells} cells traced twice each")
        self.report.passes("output_contract", "type, dtype, shape and own memory of every output")

    def _trace_many_rows(self, module: KernelModule, cells: Sequence[Cell]) -> Traced:
        """As `trace`; but a grid that CUDA refuses is an error that its user sees, and no wrong answer: nothing is judged there."""
        if not cells:
            return []
        with self.report.during("trace"):
            plans = trace(self._workers, self.source, cells, self.target, module)
        if isinstance(plans, Rejection) and plans.guard == "launch_limits":
            self.report.skips("many_rows", plans.reason)
            return []
        return list(zip(cells, _unless_rejected(plans), strict=True))

    def _trace_both(
        self, module: KernelModule, usual: Sequence[Cell], many: Sequence[Cell], small: Sequence[Cell]
    ) -> tuple[Traced, Traced]:
        """What a replay is of, cells of `many` rows among it, and what the interpreter looks at beside it: from one worker, where
        CUDA takes every grid."""
        with self.report.during("trace"):
            plans = trace(self._workers, self.source, [*usual, *many, *small], self.target, module)
        if isinstance(plans, Rejection) and plans.guard == "launch_limits":
            traced = self.trace(module, [*usual, *small])
            return traced[: len(usual)] + self._trace_many_rows(module, many), traced[len(usual) :]
        both = list(zip([*usual, *many, *small], _unless_rejected(plans), strict=True))
        self._note_traced(len(both))
        return both[: len(usual) + len(many)], both[len(usual) + len(many) :]

    def _with_few_multiprocessors(self, module: KernelModule, traced: Traced) -> dict[str, tuple[LaunchPlan, str]]:
        """The other plans that the candidate makes for a card of few multiprocessors, by cell, and words for them.

        A program that takes several rows or tiles, one after the other, takes the second one at a small cell only there. Nobody is
        rejected for what cannot be traced for such a card: it is not the card that the verdict is for.
        """
        cells = [cell for cell, _ in traced if _more_than(FEW_MULTIPROCESSORS, cell)]
        card = replace(self.target, device=replace(self.target.properties, multi_processor_count=FEW_MULTIPROCESSORS))
        with self.report.during("trace"):
            plans = trace(self._workers, self.source, cells, card, module) if cells else ()
        if isinstance(plans, Rejection):
            self.report.skips("few_multiprocessors", plans.reason)
            return {}
        usual = {cell.name: plan for cell, plan in traced}
        words = f"on a card of {FEW_MULTIPROCESSORS} multiprocessors"
        return {cell.name: (plan, words) for cell, plan in zip(cells, plans, strict=True) if plan != usual[cell.name]}

    def trace_capabilities(self, module: KernelModule, cells: Sequence[Cell]) -> tuple[Traced, list[CellResult]]:
        """The capability cells that can be traced, and a result for each of the others. Notes nothing in the report."""

        def attempt(some: Sequence[Cell], seconds: float) -> Traced | Rejection:
            plans = trace(self._workers, self.source, some, self.target, module, seconds=seconds)
            return plans if isinstance(plans, Rejection) else list(zip(some, plans, strict=True))

        return each_badge(attempt, cells, cells, CAPABILITY_TRACE_SECONDS)

    def compile(self, module: KernelModule, plans: Sequence[LaunchPlan]) -> tuple[Binaries, ...]:
        """Compile every launch of the plans for the target."""
        with self.report.during("compile"):
            compiled = _unless_rejected(self._compiled(module, plans))
        self.report.passes("compile", _compile_detail(compiled, self.target))
        return compiled

    def compile_capabilities(self, module: KernelModule, traced: Traced) -> tuple[list[CellJob], list[CellResult]]:
        """As `trace_capabilities`, for compiling."""

        def attempt(some: Traced, seconds: float) -> list[CellJob] | Rejection:
            compiled = self._compiled(module, [plan for _, plan in some], seconds, patience=1.0)
            return compiled if isinstance(compiled, Rejection) else _jobs(some, compiled)

        return each_badge(attempt, traced, [cell for cell, _ in traced], CAPABILITY_COMPILE_SECONDS)

    def _compiled(
        self, module: KernelModule, plans: Sequence[LaunchPlan], seconds: float = SECONDS, patience: float = PATIENCE
    ) -> tuple[Binaries, ...] | Rejection:
        return compile_plans(self._workers, module, plans, self.target, self._kept, seconds=seconds, patience=patience)

    def _in_parts(self, module: KernelModule, plans: Sequence[LaunchPlan]) -> Generator[Part | Rejection, None, None]:
        return compile_in_parts(self._workers, module, plans, self.target, self._kept)

    def compile_only(self, module: KernelModule) -> Verdict:
        """Trace and compile, and nothing more."""
        wanted = required(self.subject.cells("cpu"))
        bench = self.subject.bench()
        traced = self.trace(module, [*wanted, *([bench] if bench and bench not in wanted else [])])
        self.compile(module, compile_sample(traced))
        why = "the level asked for is compile"
        return self.report.ended("unsure", f"compiles for {self.target.name}; no kernel was run", unreached=why)

    def replay(
        self, module: KernelModule, replayer: Replayer, interpreters: Workers, level: Level, options: TimingOptions | None
    ) -> Verdict:
        """Everything on the GPU, and small cells in the interpreter beside it."""
        name, report = self.subject.name, self.report
        assert name is not None
        cells = self.subject.cells("gpu")
        seed = report.seed = _fresh(report.seed)
        wanted = [*required(cells), *fresh_cells(self.subject.op, seed, gpu=True)]
        usual, many = (wanted, []) if self.subject.op.origin == "user" else partition_by_rows(wanted)
        # The CPU compiles and interprets while the GPU checks what is compiled. Nothing runs beside the timing.
        with ThreadPoolExecutor(3, thread_name_prefix="aside") as aside:
            traced, small = self._trace_both(module, usual, many, small_cells(self.subject))
            extra = aside.submit(self._capability_jobs, module, with_fresh_layouts(self.subject.op, capabilities(cells), seed))
            candidate = Prepared(name, (), _atomic(module, traced))
            # First calls are checked behind all cells of a request: which of them fails first may not depend on what is compiled when.
            whole = any(_autotuned(plan) or _compares(plan) for _, plan in traced)
            seen = None if whole else aside.submit(self._beside, module, small, interpreters, seed)
            make = self._settled if whole else self._checked_as_compiled
            prepared = make(module, traced, candidate, replayer, seed)
            # Which configurations can be launched is known only now.
            first = prepared.jobs[0]
            seen = seen or aside.submit(self._beside, module, small, interpreters, seed, usable_configurations(first.plan, first.binaries))
            with report.during("correct"):
                self._take_seen(seen.result())
            with report.during("compile"):
                more, unready = extra.result()
        with report.during("correct"):
            checked = replayer.check(replace(prepared, jobs=tuple(more)), seed=seed)
        report.cells = (*report.cells, *checked.cells, *unready)
        if level == "correct" or prepared.bench is None:
            why = "the level asked for is correct" if level == "correct" else "the task has no timed cell"
            reason = f"{_passed(report)} cells agree with float64 when replayed on {report.environment['device']}; not timed: {why}"
            return report.ended("correct", reason, unreached=why)
        with report.during("timing"):
            timing = _unless_rejected(replayer.time(prepared, seed=seed, options=options))
        report.timing = timing.to_json()
        report.passes("timing", f"{timing.rounds} rounds; the outputs of all were checked")
        return report.ended(timing.decision, timing.reason)

    def _settled(self, module: KernelModule, traced: Traced, candidate: Prepared, replayer: Replayer, seed: int) -> Prepared:
        """Compile everything, settle autotuned launches, then check every cell with what was chosen."""
        compiled = self.compile(module, [plan for _, plan in traced])
        with self.report.during("correct"):
            prepared = _unless_rejected(settle(replayer, replace(candidate, jobs=tuple(_jobs(traced, compiled))), seed=seed))
            if prepared.choice:
                self.report.passes("autotune", f"configuration by step: {dict(prepared.choice)}")
            self._take(replayer.check(prepared, seed=seed))
        return prepared

    def _checked_as_compiled(self, module: KernelModule, traced: Traced, candidate: Prepared, replayer: Replayer, seed: int) -> Prepared:
        """Compile, and check each cell as soon as its kernels are there: those that take longest to compile last."""
        order = sorted(range(len(traced)), key=lambda number: effort(traced[number][1]))
        checking = Checking(replayer, candidate, [cell for cell, _ in traced], order, seed=seed)
        compiled: dict[int, Binaries] = {}
        with closing(self._in_parts(module, [plan for _, plan in traced])) as parts:
            while True:
                with self.report.during("compile"):
                    part = next(parts, None)
                if part is None:
                    break
                ready = _unless_rejected(part)
                compiled |= ready
                with self.report.during("correct"):
                    checking.take({number: CellJob(*traced[number], binaries.found) for number, binaries in ready.items()})
        binaries = [compiled[number] for number in range(len(traced))]
        self.report.passes("compile", _compile_detail(binaries, self.target))
        self._take(checking.found())
        return replace(candidate, jobs=tuple(_jobs(traced, binaries)))

    def _capability_jobs(self, module: KernelModule, cells: Sequence[Cell]) -> tuple[list[CellJob], list[CellResult]]:
        """What earns badges, ready to be replayed, and a failed result for each cell that cannot be."""
        traced, untraced = self.trace_capabilities(module, cells)
        jobs, uncompiled = self.compile_capabilities(module, traced)
        return jobs, [*untraced, *uncompiled]

    def _take(self, checked: Checked) -> None:
        report = self.report
        report.add(checked.checks)
        report.cells = checked.cells
        _stop(checked.rejection)
        report.passes("kernel_error", "no launch failed")
        report.passes("same_plan", "the plan that is timed is the plan that was checked")

    def _beside(self, module: KernelModule, small: Traced, interpreters: Workers, seed: int, configs: tuple[int, ...] = (0,)) -> Seen:
        """What the interpreter says of small cells. Notes nothing in the report."""
        from referee.cpu_path import CpuPath

        task, atomic = self.subject.task("cpu"), _atomic(module, small)
        return look(CpuPath(interpreters, task, module.text, atomic, seed, configs, seconds=INTERPRETER_SECONDS), small)

    def _take_seen(self, seen: Seen) -> None:
        report = self.report
        if seen.why_not:
            report.skips("interpreted", seen.why_not)
            report.skips("out_of_bounds", f"the guard bands catch writes; only the interpreter looks at addresses: {seen.why_not}")
            return
        if seen.rejection:
            report.cells = (*report.cells, *seen.cells)
            raise Rejected(seen.rejection)
        report.passes("interpreted", f"{len(seen.cells)} small cells agree with float64 in Triton's interpreter too")
        report.passes("out_of_bounds", f"every address read or written lies in a buffer, at {len(seen.cells)} cells in the interpreter")

    def interpret(self, module: KernelModule, interpreters: Workers, why: str) -> Verdict:
        """Correctness on the CPU; `why` says why no GPU is used."""
        from referee.cpu_path import CpuPath

        report, task = self.report, self.subject.task("cpu")
        cells = [cell for cell in required(task.cells) if feasible(cell)]
        if not cells:
            return report.failed("referee", "no cell of this task is small enough for the CPU path: judge it on a GPU")
        seed = report.seed = _fresh(report.seed)
        cells += fresh_cells(self.subject.op, seed, gpu=False)
        bench = self.subject.bench()
        traced = self.trace(module, [*cells, *([bench] if bench and bench not in cells else [])])
        many: Traced = []
        if self.subject.op.origin != "user":
            many = self._trace_many_rows(module, partition_by_rows(required(self.subject.cells("gpu")))[1])
        variants = self._with_few_multiprocessors(module, traced[: len(cells)])
        sample = compile_sample([*traced, *many])
        if _autotuned(sample[0]):
            # Each plan is as many kernels as there are configurations.
            sample = compile_sample([*traced, *many], dtypes=1, ones=False)
        binaries = self.compile(module, sample)
        configs = usable_configurations(sample[0], binaries[0].found)
        path = CpuPath(interpreters, task, module.text, _atomic(module, traced), seed, configs, variants)
        with report.during("correct"):
            report.cells, rejection = path.required(traced[: len(cells)])
            _stop(rejection)
        with report.during("trace"):
            badges = with_fresh_layouts(self.subject.op, [cell for cell in capabilities(task.cells) if feasible(cell)], seed)
            extra, untraced = self.trace_capabilities(module, badges)
        with report.during("correct"):
            report.cells = (*report.cells, *path.capabilities(extra), *untraced)
        _pass_cpu_guards(report, path.atomic)
        if variants:
            report.passes("few_multiprocessors", f"{len(variants)} cells also as {next(iter(variants.values()))[1]}")
        if _autotuned(sample[0]):
            report.passes("autotune", f"{len(configs)} configurations, and the first call, which tries them on the same memory")
        there = required(self.subject.cells("gpu"))
        replayed = f"a replay on a GPU is of compiled code, at larger shapes ({len(there)} cells, up to {_largest(there)})"
        reason = f"{len(cells)} cells, up to {_largest(cells)}, agree with float64 in Triton's interpreter; {replayed}; not timed: {why}"
        return report.ended("correct", reason, unreached=why)


def _largest(cells: Sequence[Cell]) -> str:
    """The shape of the largest input of any of the cells, as people write it."""
    shape = max((spec.shape for cell in cells for spec in cell.inputs), key=math.prod, default=())
    return " x ".join(f"{size:,}" for size in shape) or "1"


def _more_than(programs: int, cell: Cell) -> bool:
    """Whether the cell has more rows, or more large tiles, than so many."""
    shape = cell.inputs[0].shape
    return (len(shape) > 1 and shape[0] > programs) or math.prod(shape) > programs * LARGE_TILE


def _jobs(traced: Traced, binaries: Sequence[Binaries]) -> list[CellJob]:
    return [CellJob(cell, plan, binary.found) for (cell, plan), binary in zip(traced, binaries, strict=True)]


def _pass_cpu_guards(report: Report, atomic: bool) -> None:
    report.passes("kernel_error", "no kernel failed")
    report.passes("out_of_bounds", "every address read or written lies in a buffer")
    report.passes("guard_band", "nothing was written outside the buffers")
    report.passes("wrong_answer", "answers agree with float64")
    report.passes("input_mutated", "inputs are bit for bit unchanged")
    if atomic:
        report.skips("not_deterministic", "the kernels use atomic operations; each run was compared on its own")
    else:
        report.passes("not_deterministic", "a second run with other poison, addresses and program order gave the same bits")


def _fresh(seed: int | None) -> int:
    return secrets.randbits(SEED_BITS) if seed is None else seed


def _stop(rejection: Rejection | None) -> None:
    if rejection is not None:
        raise Rejected(rejection)


def _unless_rejected(answer: T | Rejection) -> T:
    if isinstance(answer, Rejection):
        raise Rejected(answer)
    return answer


def _passed(report: Report) -> int:
    return sum(cell.status == "pass" and cell.role != "capability" for cell in report.cells)


def _autotuned(plan: LaunchPlan) -> bool:
    return any(isinstance(step, Launch) and len(step.configs) > 1 for step in plan.steps)


def _compares(plan: LaunchPlan) -> bool:
    """Whether Triton compares configurations at the first call, be it that only one of them is left or all are alike."""
    return any(isinstance(step, Launch) and step.tuning is not None for step in plan.steps)


def _atomic(module: KernelModule, traced: Traced) -> bool:
    launched = {step.kernel for _, plan in traced for step in plan.steps if isinstance(step, Launch)}
    return any(signature.atomic for signature in module.signatures if signature.name in launched)


def _compile_detail(compiled: Sequence[Binaries], target: Target) -> str:
    kernels = {binary.key: binary for binaries in compiled for binary in binaries.found.values()}.values()
    registers = [binary.registers for binary in kernels if binary.registers is not None]
    spills = sum(binary.spills or 0 for binary in kernels)
    shared = max((binary.shared for binary in kernels), default=0)
    most = f", at most {max(registers)} registers" if registers else ""
    return f"{len(kernels)} specialisations for {target.name}{most}, {shared} bytes of shared memory, {spills} bytes spilled"
