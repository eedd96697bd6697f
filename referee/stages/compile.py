"""The third stage: compiles the launches of the traced plans for the target."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from referee.candidate import Candidate, unless_rejected
from referee.compiling.binaries import Binaries, Binary
from referee.compiling.compile import CompileAhead, Part, compile_in_parts, compile_plans
from referee.compiling.compile_jobs import compile_jobs
from referee.plans.plan import LaunchPlan, traffic
from referee.plans.sampling import compile_sample, kernel_branches
from referee.problem import required
from referee.stages.trace import trace_required
from referee.target import Target
from referee.verdict import Rejection, Verdict


def compile_launches(
    candidate: Candidate, plans: Sequence[LaunchPlan], ahead: CompileAhead | None = None
) -> tuple[Binaries, ...]:
    """Compile every launch of the plans and report it. Kernels compiled `ahead` are reused.

    Raises Rejected.
    """
    with candidate.report.during("compile"):
        found = unless_rejected(
            compile_plans(
                candidate.workers,
                candidate.module,
                plans,
                candidate.target,
                candidate.cache,
                ahead=ahead,
            )
        )
    note_compiled(candidate, found, plans)
    return found


def compile_parts(
    candidate: Candidate, plans: Sequence[LaunchPlan], ahead: CompileAhead
) -> Generator[Part | Rejection, None, None]:
    """As `compile_launches`, but yields each part when it is ready, without a report."""
    return compile_in_parts(
        candidate.workers,
        candidate.module,
        plans,
        candidate.target,
        candidate.cache,
        ahead=ahead,
    )


def compile_ahead(candidate: Candidate) -> CompileAhead:
    """A context that compiles kernels while other cells are traced."""
    jobs = compile_jobs(candidate.workers, candidate.module, candidate.target)
    return CompileAhead(jobs, candidate.cache)


def note_compiled(
    candidate: Candidate, found: Sequence[Binaries], plans: Sequence[LaunchPlan]
) -> None:
    """Report that every launch was compiled, with registers, spills and memory traffic."""
    candidate.report.passes("compile", _detail(found, candidate.target))
    candidate.report.environment["compiled"] = _figures(found, plans)


def compile_only(candidate: Candidate) -> Verdict:
    """Trace and compile, and end the verdict."""
    wanted = required(candidate.problem.cells("cpu"))
    bench = candidate.problem.bench()
    timed = [bench] if bench and bench not in wanted else []
    traced = trace_required(candidate, [*wanted, *timed])
    compile_launches(candidate, compile_sample(traced, kernel_branches(candidate.module.text)))
    why = "the requested level is compile"
    reason = f"compiles for {candidate.target.name}; no kernel was run"
    return candidate.report.ended("unsure", reason, unreached=why)


def _figures(compiled: Sequence[Binaries], plans: Sequence[LaunchPlan]) -> dict[str, float]:
    """Spilled bytes and registers of a thread, and memory traffic relative to the minimum."""
    kernels = _kernels(compiled)
    return {
        "spills": max((binary.spills or 0 for binary in kernels), default=0),
        "traffic": round(max(map(traffic, plans), default=1.0), 3),
        "registers": max((binary.registers or 0 for binary in kernels), default=0),
    }


def _kernels(compiled: Sequence[Binaries]) -> Sequence[Binary]:
    found = (binary for binaries in compiled for binary in binaries.found.values())
    return list({binary.key: binary for binary in found}.values())


def _detail(compiled: Sequence[Binaries], target: Target) -> str:
    kernels = _kernels(compiled)
    registers = [binary.registers for binary in kernels if binary.registers is not None]
    spills = sum(binary.spills or 0 for binary in kernels)
    shared = max((binary.shared for binary in kernels), default=0)
    most = f", at most {max(registers)} registers" if registers else ""
    return f"{len(kernels)} specialisations for {target.name}{most}, {shared} bytes of shared memory, {spills} bytes spilled"
