"""What the ways on a GPU (`on_gpu.py`) and without one (`on_cpu.py`) share: one candidate, read, traced and compiled."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from referee.badges import each_badge
from referee.compiling.binaries import Binaries
from referee.compiling.compile import Part, compile_in_parts, compile_plans
from referee.compiling.compile_ahead import CompileAhead
from referee.compiling.compile_jobs import PATIENCE, SECONDS, compile_jobs
from referee.device.jobs import CellJob
from referee.ops.spec import Cell
from referee.plans.branches import branches
from referee.plans.plan import Launch, LaunchPlan
from referee.plans.sampling import compile_sample
from referee.reading.kernels import KernelError, KernelModule, extract
from referee.reading.screen import screen
from referee.report import Rejected, Report
from referee.sandbox.workers import Workers
from referee.subject import Subject, required
from referee.target import Target
from referee.tracing.trace import PATIENCE as TRACE_PATIENCE
from referee.tracing.trace import SECONDS as TRACE_SECONDS
from referee.tracing.trace import trace
from referee.verdict import CellResult, Rejection, Verdict

T = TypeVar("T")
Level = Literal["screen", "compile", "correct", "full"]
Traced = list[tuple[Cell, LaunchPlan]]

SEED_BITS = 63
# What only earns a badge may not hold up a verdict for long: all cells of a candidate share these.
CAPABILITY_TRACE_SECONDS = 20.0
CAPABILITY_COMPILE_SECONDS = 40.0


class Judgement:
    """Stages on one candidate. Every method that returns no rejection raises Rejected when the candidate falls there."""

    def __init__(self, report: Report, source: str, subject: Subject, target: Target, workers: Workers, cache: Path | None) -> None:
        self.report, self.source, self.subject, self.target = report, source, subject, target
        self._workers, self._kept = workers, cache / "kernels" if cache else None

    def screen(self, *, host_code: bool = True) -> KernelModule:
        """Read the text; the judge's own cut of its kernels. Without `host_code` only the kernels are looked at."""
        with self.report.during("screen"):
            if host_code:
                checks, rejection = screen(self.source)
                self.report.add(checks)
                stop(rejection)
            try:
                return extract(self.source)
            except KernelError as error:
                raise Rejected(Rejection("screen", error.guard, str(error))) from None

    def traced(
        self,
        module: KernelModule,
        cells: Sequence[Cell],
        *,
        target: Target | None = None,
        seconds: float = TRACE_SECONDS,
        patience: float = TRACE_PATIENCE,
        early: int | None = None,
        stop: int | None = None,
    ) -> Traced | Rejection:
        """Run the candidate's Python, without values, for every cell; `early` and `stop` as in `trace`. Notes nothing in the report."""
        if not cells:
            return []
        plans = trace(
            self._workers, self.source, cells, target or self.target, module, seconds=seconds, patience=patience, early=early, stop=stop
        )
        return plans if isinstance(plans, Rejection) else list(zip(cells, plans, strict=True))

    def trace(self, module: KernelModule, cells: Sequence[Cell]) -> Traced:
        """The same for cells that must pass."""
        with self.report.during("trace"):
            found = unless_rejected(self.traced(module, cells))
        self.note_traced(found)
        return found

    def note_traced(self, traced: Traced) -> None:
        """That cells which must pass were traced."""
        self.report.passes("trace", f"{len(traced)} cells traced twice each")
        self.report.passes("output_contract", "type, dtype, shape and own memory of every output")

    def trace_many_rows(self, module: KernelModule, cells: Sequence[Cell]) -> Traced:
        """As `trace`, for cells of very many rows."""
        with self.report.during("trace"):
            found = self.traced(module, cells)
        return self.many_rows(found)

    def many_rows(self, found: Traced | Rejection) -> Traced:
        """What was traced of very many rows. A grid that CUDA refuses is an error that its user sees, and no wrong answer: nothing is
        judged there."""
        if isinstance(found, Rejection) and found.guard == "launch_limits":
            self.report.skips("many_rows", found.reason)
            return []
        return unless_rejected(found)

    def trace_capabilities(
        self, module: KernelModule, cells: Sequence[Cell], *, stop: int | None = None
    ) -> tuple[Traced, list[CellResult]]:
        """The capability cells that can be traced, and a result for each of the others. Notes nothing in the report.

        What is begun ends, with results that say nothing, when something can be read from `stop`.
        """

        def attempt(some: Sequence[Cell], seconds: float) -> Traced | Rejection:
            return self.traced(module, some, seconds=seconds, patience=1.0, stop=stop)

        return each_badge(attempt, cells, cells, CAPABILITY_TRACE_SECONDS)

    def ahead(self, module: KernelModule) -> CompileAhead:
        """What compiles for cells while they are being traced."""
        return CompileAhead(compile_jobs(self._workers, module, self.target), self._kept)

    def compile(self, module: KernelModule, plans: Sequence[LaunchPlan], ahead: CompileAhead | None = None) -> tuple[Binaries, ...]:
        """Compile every launch of the plans for the target, but for what is compiled ahead."""
        with self.report.during("compile"):
            found = unless_rejected(self._compiled(module, plans, ahead=ahead))
        self.note_compiled(found)
        return found

    def compiled_in_parts(
        self, module: KernelModule, plans: Sequence[LaunchPlan], ahead: CompileAhead
    ) -> Generator[Part | Rejection, None, None]:
        """The same part by part, as soon as one is ready. Notes nothing in the report."""
        return compile_in_parts(self._workers, module, plans, self.target, self._kept, ahead=ahead)

    def note_compiled(self, found: Sequence[Binaries]) -> None:
        """That every launch was compiled, and what it takes."""
        self.report.passes("compile", _compile_detail(found, self.target))

    def compile_capabilities(
        self, module: KernelModule, traced: Traced, ahead: CompileAhead | None = None, *, stop: int | None = None
    ) -> tuple[list[CellJob], list[CellResult]]:
        """As `trace_capabilities`, for compiling; what is begun `ahead` is not compiled again."""

        def attempt(some: Traced, seconds: float) -> list[CellJob] | Rejection:
            found = self._compiled(module, [plan for _, plan in some], seconds, patience=1.0, ahead=ahead, stop=stop)
            return found if isinstance(found, Rejection) else cell_jobs(some, found)

        return each_badge(attempt, traced, [cell for cell, _ in traced], CAPABILITY_COMPILE_SECONDS)

    def _compiled(
        self,
        module: KernelModule,
        plans: Sequence[LaunchPlan],
        seconds: float = SECONDS,
        patience: float = PATIENCE,
        ahead: CompileAhead | None = None,
        stop: int | None = None,
    ) -> tuple[Binaries, ...] | Rejection:
        return compile_plans(
            self._workers, module, plans, self.target, self._kept, seconds=seconds, patience=patience, ahead=ahead, stop=stop
        )

    def compile_only(self, module: KernelModule) -> Verdict:
        """Trace and compile, and nothing more."""
        wanted = required(self.subject.cells("cpu"))
        bench = self.subject.bench()
        traced = self.trace(module, [*wanted, *([bench] if bench and bench not in wanted else [])])
        self.compile(module, compile_sample(traced, branches(module.text)))
        why = "the level asked for is compile"
        return self.report.ended("unsure", f"compiles for {self.target.name}; no kernel was run", unreached=why)


def cell_jobs(traced: Traced, binaries: Sequence[Binaries]) -> list[CellJob]:
    """Cells, their plans, and the kernels that these launch."""
    return [CellJob(cell, plan, binary.found) for (cell, plan), binary in zip(traced, binaries, strict=True)]


def secret_seed(seed: int | None) -> int:
    """The one that repeats an earlier verdict, or one that nobody knows."""
    return secrets.randbits(SEED_BITS) if seed is None else seed


def stop(rejection: Rejection | None) -> None:
    """Raise Rejected for a rejection."""
    if rejection is not None:
        raise Rejected(rejection)


def unless_rejected(answer: T | Rejection) -> T:
    """The answer. Raises Rejected when it is a rejection."""
    if isinstance(answer, Rejection):
        raise Rejected(answer)
    return answer


def autotuned(plan: LaunchPlan) -> bool:
    """Whether a launch has several configurations."""
    return any(isinstance(step, Launch) and len(step.configs) > 1 for step in plan.steps)


def atomic(module: KernelModule, traced: Traced) -> bool:
    """Whether a kernel that is launched uses atomic operations."""
    launched = {step.kernel for _, plan in traced for step in plan.steps if isinstance(step, Launch)}
    return any(signature.atomic for signature in module.signatures if signature.name in launched)


def _compile_detail(compiled: Sequence[Binaries], target: Target) -> str:
    kernels = {binary.key: binary for binaries in compiled for binary in binaries.found.values()}.values()
    registers = [binary.registers for binary in kernels if binary.registers is not None]
    spills = sum(binary.spills or 0 for binary in kernels)
    shared = max((binary.shared for binary in kernels), default=0)
    most = f", at most {max(registers)} registers" if registers else ""
    return f"{len(kernels)} specialisations for {target.name}{most}, {shared} bytes of shared memory, {spills} bytes spilled"
