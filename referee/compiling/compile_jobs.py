"""Compile requests: the facts of a launch that decide its compilation.

Triton compiles a kernel anew for these facts: argument types, divisibility of pointers and integers
by 16, integers equal to 1, and every constexpr. Representatives replace all other values, so equal
requests compile once.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from referee.compiling.binaries import TOOL_LOST, Binary, BinaryError, parse_binary
from referee.concurrency import CancelToken, TaskScope
from referee.plans.plan import LaunchConfig, LaunchPlan, Value, View
from referee.plans.plan_parse import dump_value
from referee.reading.kernels import KernelModule
from referee.sandbox.zygote import JobLost, Limits, MachineBusy, Outcome, Zygote
from referee.target import Target
from referee.verdict import Rejection
from referee.versions import Toolchain, toolchain

# The judge aligns every buffer at least this far, so the alignment of a view is that of its offset.
BASE_ALIGNMENT = 16


def request(kernel: str, config: LaunchConfig) -> dict[str, Any]:
    """The JSON form of one compilation: kernel, [name, value, constexpr] lists, launch options."""
    arguments = [
        [a.name, dump_value(a.value) if a.constexpr else _reduced(a.value), a.constexpr]
        for a in config.arguments
    ]
    return {
        "kernel": kernel,
        "arguments": arguments,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "maxnreg": config.maxnreg,
    }


def key_of(compile_request: dict[str, Any], *context: str) -> str:
    """A hash of a request and its context (kernel text, target, versions)."""
    content = json.dumps([compile_request, *context], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def representative(value: int) -> int:
    """The smallest integer that Triton specialises like `value`.

    Triton distinguishes integer arguments by three properties only: equal to 1, divisible by 16,
    and the narrowest of int32, int64 and uint64 that holds them.
    """
    if value == 1:
        return 1
    multiple = value % 16 == 0
    if -(2**31) <= value < 2**31:
        return 16 if multiple else 17
    if -(2**63) <= value < 2**63:
        return 2**32 if multiple else 2**32 + 1
    return 2**63 if multiple else 2**63 + 1


def _reduced(value: Value) -> Any:
    if isinstance(value, View):
        return {"pointer": value.dtype, "offset": value.offset % BASE_ALIGNMENT}
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return representative(value)
    if isinstance(value, float):
        return 0.5
    if isinstance(value, tuple):
        return {"tuple": [_reduced(item) for item in value]}
    return dump_value(value)


ENTRY = "referee.compiling.compile_worker:compile_entry"
SECONDS = 60.0
"""Seconds of processor time for each process of a worker."""
PATIENCE = 4.0
"""Limit by the job's clock, in processor seconds: a worker waits for its disk and ptxas."""
CHECKED = "addresses"
"""Name of the checks on compiled kernels, as part of the cache's keys."""
MEMORY_BYTES = 3 << 30
OUTPUT_BYTES = 64 << 20
MAX_WORKERS = 16
MOST_TOGETHER = 4
"""Maximum number of kernels per worker; one more takes three quarters of a new worker's time."""
PART_FOR_GROUPS = 3.0
"""A worker of several kernels gets this fraction of the time; a slow kernel is repeated alone."""
MAX_REASON = 400
FINAL = frozenset({"timeout", "memory", "flood"})
"""Ends of a worker of one kernel that reject the candidate at once, because all may be slow."""

_ENDINGS = {
    "crash": "the compiler crashed on this kernel; simplify it",
    "exited": "the compiler ended without an answer",
    "timeout": "compiling took too long; unroll less or use smaller blocks",
    "memory": "the compiler ran out of memory; unroll less or use smaller blocks",
    "flood": "the compiled kernels are too large",
}

Request = dict[str, Any]
# Maps a request's key to the compiled kernel, or to (reason, whether an autotuner would skip it).
Results = dict[str, Binary | tuple[str, bool]]


class Begun:
    """The kernels of one candidate whose compilation has begun, by the keys of their requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[str, Future[Results | Rejection]] = {}
        self._alone: dict[Future[Results | Rejection], Limits] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._futures))

    def futures(self) -> tuple[Future[Results | Rejection], ...]:
        """The futures of all compilations that have begun."""
        return tuple(self._futures.values())

    def unless_begun(
        self, key: str, limits: Limits, begin: Callable[[], Future[Results | Rejection]]
    ) -> None:
        """Begins this compilation, in a separate worker with these limits, unless it has begun."""
        with self._lock:
            if key not in self._futures:
                self._futures[key] = future = begin()
                self._alone[future] = limits

    def is_conclusive(self, future: Future[Results | Rejection], limits: Limits) -> bool:
        """Whether this job would fail in the same way as a job of one kernel with these limits."""
        return self._alone.get(future) == limits

    def by_future(
        self,
        keys: Sequence[str],
        limits: Limits,
        groups: Callable[[Sequence[str]], Sequence[Sequence[str]]],
        begin: Callable[[Sequence[str]], Future[Results | Rejection]],
    ) -> tuple[
        dict[Future[Results | Rejection], Sequence[str]], frozenset[Future[Results | Rejection]]
    ]:
        """Maps the compiling jobs to keys, and names the jobs that had begun before; it begins the
        missing ones, in groups. `limits` are those of a job of one kernel.
        """
        running: dict[Future[Results | Rejection], Sequence[str]] = {}
        with self._lock:
            for key in keys:
                if future := self._futures.get(key):
                    running[future] = [*running.get(future, ()), key]
            others = frozenset(running)
            for group in groups([key for key in keys if key not in self._futures]):
                running[future := begin(group)] = group
                self._futures |= dict.fromkeys(group, future)
                if len(group) == 1:
                    self._alone[future] = limits
        return running, others


@dataclass(frozen=True)
class CompileJobs:
    """Compiles the kernels of one candidate for one target."""

    zygote: Zygote
    module: KernelModule
    target: Target
    tools: Toolchain
    limits: Limits

    def key(self, wanted: Request) -> str:
        """A key that is equal for requests with the same result."""
        return key_of(
            wanted,
            self.module.text,
            json.dumps(self.target.to_json(), sort_keys=True),
            self.tools.identity,
            CHECKED,
        )

    def run(
        self, wanted: Mapping[str, Request], cancel: CancelToken | None = None
    ) -> Results | Rejection:
        """The kernels of these requests by key, from one worker; a readable `cancel` ends it.

        Raises JobLost, also after `cancel`.
        """
        job = {
            "text": self.module.text,
            "target": self.target.to_json(),
            "ptxas_version": self.tools.ptxas_version,
            "requests": list(wanted.values()),
        }
        payload = json.dumps(job).encode()
        limits = self.limits if len(wanted) == 1 else _for_groups(self.limits)
        for _ in range(2):
            outcome = self.zygote.run(ENTRY, payload, limits=limits, cancel=cancel)
            if outcome.cancelled:
                raise JobLost("compiling was stopped")
            if outcome.status != "ok" or outcome.data != TOOL_LOST:
                return _results(outcome, wanted)
        raise JobLost("ptxas was ended from outside twice")

    def run_all(
        self, wanted: Mapping[str, Request], begun: Begun, cancel: CancelToken | None = None
    ) -> Generator[Results | Rejection, None, None]:
        """Yields results in the order in which workers end; a worker's failure comes last.

        A failure in `FINAL` ends all compilations. Any other failure waits for them, and the first
        kernel's failure counts. Compilations in `begun` are not repeated unless they were lost.
        `cancel` is as in `run`. Raises JobLost.
        """
        # Children are forked one after the other, so the longest job goes first.
        keys = sorted(wanted, key=lambda key: request_effort(wanted[key]), reverse=True)
        failed: dict[int, Rejection] = {}
        # Leaving the block stops compilations that are no longer needed.
        with TaskScope("compile", worker_count(len(keys))) as scope:
            ends = scope.cancel if cancel is None else cancel

            def begin(group: Sequence[str]) -> Future[Results | Rejection]:
                return scope.submit(partial(self.run, {key: wanted[key] for key in group}, ends))

            running, others = begun.by_future(keys, self.limits, self._groups, begin)
            while running and not any(found.guard in FINAL for found in failed.values()):
                made: Results = {}
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    group = running.pop(future)
                    lost = future in others and (
                        future.cancelled() or future.exception() is not None
                    )
                    found = None if lost else future.result()
                    if isinstance(found, dict):
                        made |= {key: found[key] for key in group}
                    elif found is not None and (
                        begun.is_conclusive(future, self.limits)
                        if future in others
                        else len(group) == 1
                    ):
                        failed[keys.index(group[0])] = found
                    else:
                        # A shared job's failure may come from its other kernels or its time limit;
                        # a group's failure names no kernel.
                        running |= {begin([key]): [key] for key in group}
                if made:
                    yield made
        if failed:
            yield failed[min(failed, key=lambda place: (failed[place].guard not in FINAL, place))]

    def idle(self) -> int:
        """Number of further workers for which there are free processors."""
        return worker_count(MAX_WORKERS) - self.zygote.running(ENTRY)

    def _groups(self, keys: Sequence[str]) -> list[Sequence[str]]:
        workers = min(len(keys), max(self.idle(), -(-len(keys) // MOST_TOGETHER)))
        return [keys[first::workers] for first in range(workers)]


def compile_jobs(
    zygote: Zygote,
    module: KernelModule,
    target: Target,
    *,
    seconds: float = SECONDS,
    patience: float = PATIENCE,
) -> CompileJobs:
    """The compile jobs of a candidate for one target.

    `seconds` is the processor time of each worker process, `patience` times that the limit by its
    clock. Raises ToolchainError or UnknownTriton if this host cannot compile.
    """
    tools = toolchain(target)
    limits = Limits(
        patience * seconds, MEMORY_BYTES, OUTPUT_BYTES, (tools.ptxas,), processor_seconds=seconds
    )
    return CompileJobs(zygote, module, target, tools, limits)


def _for_groups(limits: Limits) -> Limits:
    assert limits.processor_seconds is not None
    return replace(
        limits,
        seconds=limits.seconds / PART_FOR_GROUPS,
        processor_seconds=limits.processor_seconds / PART_FOR_GROUPS,
    )


def requests(plan: LaunchPlan) -> Iterator[tuple[tuple[int, int], Request]]:
    """The compile requests of a plan's launches, by step and configuration number."""
    for number, launch in plan.launches():
        for position, config in enumerate(launch.configs):
            yield (number, position), request(launch.kernel, config)


def worker_count(jobs: int) -> int:
    """Number of workers that compile at the same time."""
    return max(1, min(jobs, os.cpu_count() or 1, MAX_WORKERS))


def request_effort(wanted: Request) -> int:
    """A guess at the compile time: the largest integer constant, usually a block size."""
    constants = [
        value for _, value, constexpr in wanted["arguments"] if constexpr and isinstance(value, int)
    ]
    return max(constants, default=0)


def _results(outcome: Outcome, wanted: Mapping[str, Request]) -> Results | Rejection:
    """The meaning of one worker's end. Raises JobLost."""
    if outcome.killed_outside:
        raise JobLost("a compile worker was lost")
    if outcome.status == "starved":
        raise MachineBusy(outcome.detail)
    if outcome.status != "ok":
        guard = "compile_error" if outcome.status == "exited" else outcome.status
        return Rejection("compile", guard, _ENDINGS[outcome.status])
    try:
        return _read(outcome.data, wanted)
    except (BinaryError, ValueError, RecursionError) as error:
        reason = f"the compile worker sent an unreadable answer: {error}"
        return Rejection("compile", "compile_error", reason[:MAX_REASON])


def _read(data: bytes, wanted: Mapping[str, Request]) -> Results:
    answer = json.loads(data)
    if not isinstance(answer, list) or len(answer) != len(wanted):
        raise BinaryError("not one result for each kernel")
    results: Results = {}
    for (key, asked), item in zip(wanted.items(), answer, strict=True):
        if (
            isinstance(item, dict)
            and isinstance(item.get("error"), str)
            and isinstance(item.get("skippable"), bool)
        ):
            results[key] = (" ".join(item["error"].split())[:MAX_REASON], item["skippable"])
        elif isinstance(item, dict) and "binary" in item:
            results[key] = parse_binary(item["binary"], asked["kernel"], key)
        else:
            raise BinaryError("a result that is neither a kernel nor an error")
    return results
