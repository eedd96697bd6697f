"""The judge's side of compilation: plans in, compiled kernels for every launch and configuration out, or a rejection.

Equal specialisations are compiled once over all plans of a judgement, in several sandboxed workers at a time, and kept in
an optional cache. Who can use a plan while others are still being compiled takes the plans in parts. Needs no GPU.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from referee.compiling.binaries import Binaries, Binary
from referee.compiling.compile_ahead import CompileAhead
from referee.compiling.compile_cache import CompileCache
from referee.compiling.compile_jobs import PATIENCE, SECONDS, Begun, Request, Results, compile_jobs, request_effort, requests
from referee.plans.plan import Launch, LaunchPlan
from referee.reading.kernels import KernelModule
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.verdict import Rejection

__all__ = ["Binaries", "Binary", "Part", "compile_in_parts", "compile_plan", "compile_plans", "effort"]

# The kernels of some plans, by the plan's number.
Part = Mapping[int, Binaries]


def compile_plan(
    zygote: Zygote, module: KernelModule, plan: LaunchPlan, target: Target, cache_dir: Path | None = None
) -> Binaries | Rejection:
    """The kernels of one plan.

    Raises ToolchainError, UnknownTriton or ZygoteError when this host cannot compile, JobLost if a worker was ended from outside.
    """
    compiled = compile_plans(zygote, module, [plan], target, cache_dir)
    return compiled if isinstance(compiled, Rejection) else compiled[0]


def compile_plans(
    zygote: Zygote,
    module: KernelModule,
    plans: Sequence[LaunchPlan],
    target: Target,
    cache_dir: Path | None = None,
    *,
    seconds: float = SECONDS,
    patience: float = PATIENCE,
    ahead: CompileAhead | None = None,
    stop: int | None = None,
) -> tuple[Binaries, ...] | Rejection:
    """The kernels of several plans of one candidate, in the plans' order. Raises as `compile_plan`.

    `seconds` of processor time are what each process of a worker gets, and `patience` times as many by the clock; time is up at once when
    something can be read from `stop`. What was begun `ahead` is not compiled again, and what is begun here is noted there. A
    configuration of an autotuned launch that Triton's autotuner would skip is dropped, unless none is left.
    """
    found: dict[int, Binaries] = {}
    parts = compile_in_parts(zygote, module, plans, target, cache_dir, seconds=seconds, patience=patience, ahead=ahead, stop=stop)
    for part in parts:
        if isinstance(part, Rejection):
            return part
        found |= part
    return tuple(found[number] for number in range(len(plans)))


def compile_in_parts(
    zygote: Zygote,
    module: KernelModule,
    plans: Sequence[LaunchPlan],
    target: Target,
    cache_dir: Path | None = None,
    *,
    seconds: float = SECONDS,
    patience: float = PATIENCE,
    ahead: CompileAhead | None = None,
    stop: int | None = None,
) -> Generator[Part | Rejection, None, None]:
    """As `compile_plans`, each plan as soon as all its kernels are compiled.

    A rejection comes last, when everything else has ended: which one it is does not depend on who was faster.
    """
    jobs = compile_jobs(zygote, module, target, seconds=seconds, patience=patience)
    wanted: dict[str, Request] = {}
    keys: list[dict[tuple[int, int], str]] = []
    for plan in plans:
        keys.append({})
        for place, compile_request in requests(plan):
            key = jobs.key(compile_request)
            wanted[key] = compile_request
            keys[-1][place] = key
    cache = CompileCache(cache_dir) if cache_dir is not None else None
    results: Results = {}
    if cache is not None:
        loaded = {key: cache.load(key, wanted[key]["kernel"]) for key in wanted}
        results.update({key: binary for key, binary in loaded.items() if binary is not None})
    missing = {key: wanted[key] for key in wanted if key not in results}
    waiting = dict(enumerate(keys))
    rejections: dict[int, Rejection] = {}
    # What the cache held may already be all that some plans need.
    with closing(jobs.run_all(missing, ahead.begun if ahead is not None else Begun(), stop)) as parts:
        for made in chain([Results()], parts):
            if isinstance(made, Rejection):
                yield made
                return
            if cache is not None:
                for result in made.values():
                    if isinstance(result, Binary):
                        cache.store(result)
            results.update(made)
            complete = [number for number, places in waiting.items() if all(key in results for key in places.values())]
            assembled = {number: _assemble(plans[number], waiting.pop(number), results, target) for number in complete}
            rejections |= {number: found for number, found in assembled.items() if isinstance(found, Rejection)}
            if ready := {number: found for number, found in assembled.items() if isinstance(found, Binaries)}:
                yield ready
    if cache is not None and missing:
        cache.prune()
    if rejections:
        yield rejections[min(rejections)]


def effort(plan: LaunchPlan) -> int:
    """A number that is larger for plans whose kernels take longer to compile; a guess."""
    return max((request_effort(compile_request) for _, compile_request in requests(plan)), default=0)


def _assemble(plan: LaunchPlan, places: Mapping[tuple[int, int], str], results: Results, target: Target) -> Binaries | Rejection:
    found: dict[tuple[int, int], Binary] = {}
    dropped: dict[tuple[int, int], str] = {}
    for place, key in places.items():
        result = _within_limits(results[key], target)
        if isinstance(result, Binary):
            found[place] = result
            continue
        reason, skippable = result
        if not skippable:
            return Rejection("compile", "compile_error", reason)
        dropped[place] = reason
    for number, step in enumerate(plan.steps):
        if isinstance(step, Launch) and not any((number, position) in found for position in range(len(step.configs))):
            return Rejection("compile", "compile_error", dropped[number, 0])
    return Binaries(found, dropped)


def _within_limits(result: Binary | tuple[str, bool], target: Target) -> Binary | tuple[str, bool]:
    limit = target.properties.shared_memory_per_block_optin
    if isinstance(result, Binary) and result.shared > limit:
        return f"kernel `{result.kernel}` needs {result.shared} bytes of shared memory; {target.name} has {limit}: use smaller blocks", True
    return result
