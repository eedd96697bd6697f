"""Kernels as jobs for sandboxed workers: requests in, compiled kernels or the compiler's complaints out. Needs no GPU."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from referee.aside import Aside
from referee.compiling.binaries import TOOL_LOST, Binary, BinaryError, parse_binary
from referee.compiling.specialise import key_of, request
from referee.compiling.toolchain import Toolchain, toolchain
from referee.plans.plan import Launch, LaunchPlan
from referee.reading.kernels import KernelModule
from referee.sandbox.workers import JobLost
from referee.sandbox.zygote import Limits, Outcome, Zygote
from referee.target import Target
from referee.verdict import Rejection

ENTRY = "referee.compiling.compile_worker:compile_entry"
SECONDS = 60.0
"""Of processor time, for each process of a worker."""
PATIENCE = 4.0
"""How many times as long as a worker may take by the clock: others may keep the processors busy, and beside a GPU they go first."""
CHECKED = "addresses"
"""What is looked at in compiled kernels: part of their keys, so that none comes out of a cache that was not looked at so."""
MEMORY_BYTES = 3 << 30
OUTPUT_BYTES = 64 << 20
MAX_WORKERS = 16
MOST_TOGETHER = 4
"""So many kernels one worker compiles where all processors are busy: one more kernel takes it three quarters of what a new worker takes."""
MAX_REASON = 400

_ENDINGS = {
    "crash": "the compiler crashed on this kernel; simplify it",
    "exited": "the compiler ended without an answer",
    "timeout": "compiling took too long; unroll less or use smaller blocks",
    "memory": "the compiler ran out of memory; unroll less or use smaller blocks",
    "flood": "the compiled kernels are too large",
}

Request = dict[str, Any]
# A request's key -> the compiled kernel, or (reason, whether an autotuner would skip it).
Results = dict[str, Binary | tuple[str, bool]]


class Begun:
    """The kernels of one candidate that somebody is compiling, or has, by the keys of their requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[str, Future[Results | Rejection]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._futures))

    def futures(self) -> tuple[Future[Results | Rejection], ...]:
        """Everything that was begun."""
        return tuple(self._futures.values())

    def unless_begun(self, key: str, begin: Callable[[], Future[Results | Rejection]]) -> None:
        """Begin this one if nobody has."""
        with self._lock:
            if key not in self._futures:
                self._futures[key] = begin()

    def by_future(
        self,
        keys: Sequence[str],
        groups: Callable[[Sequence[str]], Sequence[Sequence[str]]],
        begin: Callable[[Sequence[str]], Future[Results | Rejection]],
    ) -> tuple[dict[Future[Results | Rejection], Sequence[str]], frozenset[Future[Results | Rejection]]]:
        """The keys by the jobs that compile them, and which of these others have begun; what nobody has begun is, in groups."""
        running: dict[Future[Results | Rejection], Sequence[str]] = {}
        with self._lock:
            for key in keys:
                if future := self._futures.get(key):
                    running[future] = [*running.get(future, ()), key]
            others = frozenset(running)
            for group in groups([key for key in keys if key not in self._futures]):
                running[future := begin(group)] = group
                self._futures |= dict.fromkeys(group, future)
        return running, others


@dataclass(frozen=True)
class CompileJobs:
    """What compiles the kernels of one candidate for one target."""

    zygote: Zygote
    module: KernelModule
    target: Target
    tools: Toolchain
    limits: Limits

    def key(self, wanted: Request) -> str:
        """Equal for kernels that come out the same."""
        return key_of(wanted, self.module.text, json.dumps(self.target.to_json(), sort_keys=True), self.tools.identity, CHECKED)

    def run(self, wanted: Mapping[str, Request], stop: int | None = None) -> Results | Rejection:
        """The kernels of these requests, by their keys, from one worker; its time is up when `stop` can be read. Raises JobLost."""
        job = {
            "text": self.module.text,
            "target": self.target.to_json(),
            "ptxas_version": self.tools.ptxas_version,
            "requests": list(wanted.values()),
        }
        payload = json.dumps(job).encode()
        for _ in range(2):
            outcome = self.zygote.run(ENTRY, payload, limits=self.limits, stop=stop)
            if outcome.status != "ok" or outcome.data != TOOL_LOST:
                return _results(outcome, wanted)
        raise JobLost("ptxas was ended from outside twice")

    def run_all(self, wanted: Mapping[str, Request], begun: Begun, stop: int | None = None) -> Generator[Results | Rejection, None, None]:
        """Results in the order in which workers end; a worker's failure last. What others have `begun` is not begun twice, but where they
        lose it. `stop` as in `run`.

        Raises JobLost.
        """
        # Children are forked one after the other, so the one that will take longest goes first.
        keys = sorted(wanted, key=lambda key: request_effort(wanted[key]), reverse=True)
        failed: dict[int, Rejection] = {}
        # What nobody waits for any more is stopped.
        with Aside("compile", worker_count(len(keys))) as aside:
            ends = aside.stop if stop is None else stop

            def begin(group: Sequence[str]) -> Future[Results | Rejection]:
                return aside.submit(partial(self.run, {key: wanted[key] for key in group}, ends))

            running, others = begun.by_future(keys, self._groups, begin)
            while running:
                made: Results = {}
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    group = running.pop(future)
                    lost = future in others and (future.cancelled() or future.exception() is not None)
                    found = None if lost else future.result()
                    if isinstance(found, dict):
                        made |= {key: found[key] for key in group}
                    elif found is None or future in others or len(group) > 1:
                        # What others were told may be of their time and their kernels; of several kernels nobody knows which it was.
                        running |= {begin([key]): [key] for key in group}
                    else:
                        failed[keys.index(group[0])] = found
                if made:
                    yield made
        if failed:
            yield failed[min(failed)]

    def idle(self) -> int:
        """How many more workers there are processors for."""
        return worker_count(MAX_WORKERS) - self.zygote.running(ENTRY)

    def _groups(self, keys: Sequence[str]) -> list[Sequence[str]]:
        workers = min(len(keys), max(self.idle(), -(-len(keys) // MOST_TOGETHER)))
        return [keys[first::workers] for first in range(workers)]


def compile_jobs(
    zygote: Zygote, module: KernelModule, target: Target, *, seconds: float = SECONDS, patience: float = PATIENCE
) -> CompileJobs:
    """`seconds` of processor time are what each process of a worker gets, and `patience` times as many by the clock.

    Raises ToolchainError or UnknownTriton when this host cannot compile.
    """
    tools = toolchain(target)
    limits = Limits(patience * seconds, MEMORY_BYTES, OUTPUT_BYTES, (tools.ptxas,), processor_seconds=seconds)
    return CompileJobs(zygote, module, target, tools, limits)


def requests(plan: LaunchPlan) -> Iterator[tuple[tuple[int, int], Request]]:
    """What a plan's launches are compiled of, by the numbers of step and configuration."""
    for number, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            for position, config in enumerate(step.configs):
                yield (number, position), request(step.kernel, config)


def worker_count(jobs: int) -> int:
    """How many workers compile at a time."""
    return max(1, min(jobs, os.cpu_count() or 1, MAX_WORKERS))


def request_effort(wanted: Request) -> int:
    """The largest constant, as a rule the size of a block, says most about how long it takes."""
    constants = [value for _, value, constexpr in wanted["arguments"] if constexpr and isinstance(value, int)]
    return max(constants, default=0)


def _results(outcome: Outcome, wanted: Mapping[str, Request]) -> Results | Rejection:
    """What one worker's end means. Raises JobLost."""
    if outcome.killed_outside:
        raise JobLost("a compile worker was lost")
    if outcome.status != "ok":
        return Rejection("compile", "compile_error" if outcome.status == "exited" else outcome.status, _ENDINGS[outcome.status])
    try:
        return _read(outcome.data, wanted)
    except (BinaryError, ValueError, RecursionError) as error:
        return Rejection("compile", "compile_error", f"the compile worker sent an unreadable answer: {error}"[:MAX_REASON])


def _read(data: bytes, wanted: Mapping[str, Request]) -> Results:
    answer = json.loads(data)
    if not isinstance(answer, list) or len(answer) != len(wanted):
        raise BinaryError("not one result for each kernel")
    results: Results = {}
    for (key, asked), item in zip(wanted.items(), answer, strict=True):
        if isinstance(item, dict) and isinstance(item.get("error"), str) and isinstance(item.get("skippable"), bool):
            results[key] = (" ".join(item["error"].split())[:MAX_REASON], item["skippable"])
        elif isinstance(item, dict) and "binary" in item:
            results[key] = parse_binary(item["binary"], asked["kernel"], key)
        else:
            raise BinaryError("a result that is neither a kernel nor an error")
    return results
