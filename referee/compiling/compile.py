"""The judge's side of compilation: plans in, compiled kernels for every launch and configuration out.

Equal specialisations compile once over all plans of a judgement, in several sandboxed workers at a
time, with an optional cache. A caller that can use a plan while others still compile takes the
plans in parts. The module needs no GPU.

`CompileAhead` compiles kernels while their candidate is still being traced, from plans that the
trace reports early. Early plans may be forged, and so may final ones. They decide only which
kernels compile early. A kernel is found again by all inputs of its compilation, and unused kernels
are dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

from referee.compiling.binaries import Binaries, Binary, CompileCache
from referee.compiling.compile_jobs import (
    PATIENCE,
    SECONDS,
    Begun,
    CompileJobs,
    Request,
    Results,
    compile_jobs,
    request_effort,
    requests,
    worker_count,
)
from referee.concurrency import CancelToken, TaskScope
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import PlanError, parse
from referee.reading.kernels import KernelModule
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.verdict import Rejection

MAX_KERNELS = 16
"""Maximum number of speculative compilations; the number of processors limits it further."""
MAX_LINE = 1 << 20


class CompileAhead:
    """Speculative compilation of one candidate's kernels. Leaving the context stops all of it.

    `begun` holds all compilations of this judgement, whether they began here or in another stage.
    """

    def __init__(self, jobs: CompileJobs, cache_dir: Path | None) -> None:
        self._jobs = jobs
        self._cache = CompileCache(cache_dir) if cache_dir is not None else None
        self._left = worker_count(MAX_KERNELS)
        self._scope = TaskScope("ahead", self._left)
        self.begun = Begun()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._scope.__exit__(*error)

    @contextlib.contextmanager
    def listening(self, cells: Sequence[Cell]) -> Iterator[int]:
        """A file descriptor to which a trace of `cells` writes lines of case number and plan."""
        read, write = os.pipe()
        listener = threading.Thread(target=self._listen, args=(read, cells), name="listening")
        listener.start()
        try:
            yield write
        finally:
            os.close(write)
            listener.join()

    def _listen(self, descriptor: int, cells: Sequence[Cell]) -> None:
        with open(descriptor, "rb") as lines:
            for _ in cells:
                try:
                    number, data = json.loads(lines.readline(MAX_LINE))
                    cell = cells[number]
                    plan = parse(data, cell.inputs, cell.outputs, self._jobs.module)
                except (ValueError, TypeError, IndexError, RecursionError, PlanError):
                    # The end of the reports, or a malformed one. The final answer is checked in any
                    # case.
                    return
                for _, request in requests(plan):
                    self._begin(self._jobs.key(request), request)

    def _begin(self, key: str, request: Request) -> None:
        kept = self._cache is not None and self._cache.load(key, request["kernel"]) is not None
        # Without a free processor, kernels compile later in groups.
        if not kept and key not in self.begun and self._left and self._jobs.idle() > 0:
            self._left -= 1
            self.begun.unless_begun(
                key,
                self._jobs.limits,
                partial(
                    self._scope.submit, partial(self._jobs.run, {key: request}, self._scope.cancel)
                ),
            )


__all__ = [
    "Binaries",
    "Binary",
    "Part",
    "compile_in_parts",
    "compile_plan",
    "compile_plans",
    "effort",
]

# The kernels of some plans, by the plan's number.
Part = Mapping[int, Binaries]


def compile_plan(
    zygote: Zygote,
    module: KernelModule,
    plan: LaunchPlan,
    target: Target,
    cache_dir: Path | None = None,
) -> Binaries | Rejection:
    """The kernels of one plan.

    Raises ToolchainError, UnknownTriton or ZygoteError if this host cannot compile, JobLost if a
    worker was killed from outside.
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
    cancel: CancelToken | None = None,
) -> tuple[Binaries, ...] | Rejection:
    """The kernels of several plans of one candidate, in the plans' order. Raises as `compile_plan`.

    `seconds` is the processor time of each worker process, `patience` times that the limit
    by its clock; a readable `cancel` ends the time at once. Compilations in `ahead` are not repeated, and
    new ones are noted there. A configuration that Triton's autotuner would skip is dropped, unless
    none is left.
    """
    found: dict[int, Binaries] = {}
    parts = compile_in_parts(
        zygote,
        module,
        plans,
        target,
        cache_dir,
        seconds=seconds,
        patience=patience,
        ahead=ahead,
        cancel=cancel,
    )
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
    cancel: CancelToken | None = None,
) -> Generator[Part | Rejection, None, None]:
    """As `compile_plans`, but yields each plan as soon as all its kernels are compiled.

    A rejection comes last, when all workers have ended, so it does not depend on their speed.
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
    # The cache may already hold all kernels of some plans.
    with closing(
        jobs.run_all(missing, ahead.begun if ahead is not None else Begun(), cancel)
    ) as parts:
        for made in chain([Results()], parts):
            if isinstance(made, Rejection):
                yield made
                return
            if cache is not None:
                for result in made.values():
                    if isinstance(result, Binary):
                        cache.store(result)
            results.update(made)
            complete = [
                number for number, places in waiting.items() if results.keys() >= {*places.values()}
            ]
            assembled = {
                number: _assemble(plans[number], waiting.pop(number), results, target)
                for number in complete
            }
            rejections |= {
                number: found for number, found in assembled.items() if isinstance(found, Rejection)
            }
            if ready := {
                number: found for number, found in assembled.items() if isinstance(found, Binaries)
            }:
                yield ready
    if cache is not None and missing:
        cache.prune()
    if rejections:
        yield rejections[min(rejections)]


def effort(plan: LaunchPlan) -> int:
    """A guess at a plan's compile time; larger is longer."""
    return max(
        (request_effort(compile_request) for _, compile_request in requests(plan)), default=0
    )


def _assemble(
    plan: LaunchPlan, places: Mapping[tuple[int, int], str], results: Results, target: Target
) -> Binaries | Rejection:
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
    for number, launch in plan.launches():
        if not any((number, position) in found for position in range(len(launch.configs))):
            return Rejection("compile", "compile_error", dropped[number, 0])
    return Binaries(found, dropped)


def _within_limits(result: Binary | tuple[str, bool], target: Target) -> Binary | tuple[str, bool]:
    limit = target.properties.shared_memory_per_block_optin
    if isinstance(result, Binary) and result.shared > limit:
        needs = f"kernel `{result.kernel}` needs {result.shared} bytes of shared memory"
        return f"{needs}; {target.name} has {limit}: use smaller blocks", True
    return result
