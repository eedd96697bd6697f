"""The judge's side of compilation: plans in, compiled kernels for every launch and configuration out, or a rejection.

Equal specialisations are compiled once over all plans of a judgement, in several sandboxed workers at a time, and kept in
an optional cache. Who can use a plan while others are still being compiled takes the plans in parts. Needs no GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import chain
from pathlib import Path
from typing import Any

from referee.binaries import TOOL_LOST, Binaries, Binary, BinaryError, parse_binary
from referee.compile_cache import CompileCache
from referee.kernels import KernelModule
from referee.plan import Launch, LaunchPlan
from referee.specialise import key_of, request
from referee.target import Target
from referee.toolchain import Toolchain, toolchain
from referee.verdict import Rejection
from referee.workers import JobLost
from referee.zygote import Limits, Outcome, Zygote

__all__ = ["Binaries", "Binary", "Part", "compile_in_parts", "compile_plan", "compile_plans", "effort"]

ENTRY = "referee.compile_worker:compile_entry"
SECONDS = 60.0
"""Of processor time, for each process of a worker."""
PATIENCE = 4.0
"""How many times as long a worker may take by the clock: others may keep the processors busy, and beside a GPU they go first."""
MEMORY_BYTES = 3 << 30
OUTPUT_BYTES = 64 << 20
MAX_WORKERS = 16
MAX_REASON = 400

_ENDINGS = {
    "crash": "the compiler crashed on this kernel; simplify it",
    "exited": "the compiler ended without an answer",
    "timeout": "compiling took too long; unroll less or use smaller blocks",
    "memory": "the compiler ran out of memory; unroll less or use smaller blocks",
    "flood": "the compiled kernels are too large",
}

# A request's key -> the compiled kernel, or (reason, whether an autotuner would skip it).
Results = dict[str, Binary | tuple[str, bool]]

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
) -> tuple[Binaries, ...] | Rejection:
    """The kernels of several plans of one candidate, in the plans' order. Raises as `compile_plan`.

    `seconds` of processor time are what each process of a worker gets, and `patience` times as many by the clock.
    A configuration of an autotuned launch that Triton's autotuner would skip is dropped, unless none is left.
    """
    found: dict[int, Binaries] = {}
    for part in compile_in_parts(zygote, module, plans, target, cache_dir, seconds=seconds, patience=patience):
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
) -> Generator[Part | Rejection, None, None]:
    """As `compile_plans`, each plan as soon as all its kernels are compiled.

    A rejection comes last, when everything else has ended: which one it is does not depend on who was faster.
    """
    tools = toolchain(target)
    limits = Limits(patience * seconds, MEMORY_BYTES, OUTPUT_BYTES, (tools.ptxas,), processor_seconds=seconds)
    context = (module.text, json.dumps(target.to_json(), sort_keys=True), tools.identity)
    wanted: dict[str, dict[str, Any]] = {}
    keys: list[dict[tuple[int, int], str]] = []
    for plan in plans:
        keys.append({})
        for place, compile_request in _requests(plan):
            key = key_of(compile_request, *context)
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
    for made in chain([dict[str, Any]()], _compiled(zygote, module, missing, target, tools, limits)):
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
    return max((_effort(compile_request) for _, compile_request in _requests(plan)), default=0)


def _effort(compile_request: dict[str, Any]) -> int:
    """The largest constant, as a rule the size of a block, says most about it."""
    constants = [value for _, value, constexpr in compile_request["arguments"] if constexpr and isinstance(value, int)]
    return max(constants, default=0)


def _requests(plan: LaunchPlan) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    for number, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            for position, config in enumerate(step.configs):
                yield (number, position), request(step.kernel, config)


def _compiled(
    zygote: Zygote, module: KernelModule, wanted: dict[str, dict[str, Any]], target: Target, tools: Toolchain, limits: Limits
) -> Iterator[Results | Rejection]:
    """Results in the order in which workers end; a worker's failure last."""
    if not wanted:
        return
    workers = min(len(wanted), os.cpu_count() or 1, MAX_WORKERS)
    # Children are forked one after the other, so the one that will take longest goes first.
    keys = sorted(wanted, key=lambda key: _effort(wanted[key]), reverse=True)
    groups = [keys[first::workers] for first in range(workers)]

    def run(group: list[str]) -> Results | Rejection:
        job = {
            "text": module.text,
            "target": target.to_json(),
            "ptxas_version": tools.ptxas_version,
            "requests": [wanted[key] for key in group],
        }
        payload = json.dumps(job).encode()
        for _ in range(2):
            outcome = zygote.run(ENTRY, payload, limits=limits)
            if outcome.status != "ok" or outcome.data != TOOL_LOST:
                return _results(outcome, group, wanted)
        raise JobLost("ptxas was ended from outside twice")

    failed: dict[int, Rejection] = {}
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(run, group): number for number, group in enumerate(groups)}
        while running:
            ended = wait(running, return_when=FIRST_COMPLETED).done
            made: Results = {}
            for future in ended:
                number, found = running.pop(future), future.result()
                if isinstance(found, Rejection):
                    failed[number] = found
                else:
                    made |= found
            if made:
                yield made
    if failed:
        yield failed[min(failed)]


def _results(outcome: Outcome, group: list[str], wanted: dict[str, dict[str, Any]]) -> Results | Rejection:
    """What one worker's end means. Raises JobLost."""
    if outcome.killed_outside:
        raise JobLost("a compile worker was lost")
    if outcome.status != "ok":
        return Rejection("compile", "compile_error" if outcome.status == "exited" else outcome.status, _ENDINGS[outcome.status])
    try:
        return _read(outcome.data, group, wanted)
    except (BinaryError, ValueError, RecursionError) as error:
        return Rejection("compile", "compile_error", f"the compile worker sent an unreadable answer: {error}"[:MAX_REASON])


def _read(data: bytes, group: list[str], wanted: dict[str, dict[str, Any]]) -> Results:
    answer = json.loads(data)
    if not isinstance(answer, list) or len(answer) != len(group):
        raise BinaryError("not one result for each kernel")
    results: Results = {}
    for key, item in zip(group, answer, strict=True):
        if isinstance(item, dict) and isinstance(item.get("error"), str) and isinstance(item.get("skippable"), bool):
            results[key] = (" ".join(item["error"].split())[:MAX_REASON], item["skippable"])
        elif isinstance(item, dict) and "binary" in item:
            results[key] = parse_binary(item["binary"], wanted[key]["kernel"], key)
        else:
            raise BinaryError("a result that is neither a kernel nor an error")
    return results


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
