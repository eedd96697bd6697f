"""Rounds of timed calls on the device: the mechanics of measuring, without any judgement.

Before every call the L2 cache is flushed: a buffer of three times its size is read. No call may wait for the host: after queueing a
call its start event must still lie in the future, otherwise the queue had run dry and that sample is dropped (`Block.starved`).
Flushes at the start of a block let the host get ahead, and as many more whenever the queue has run dry: a slow host costs a few
samples and the time it needs, and no call a longer flush.

Reading that once takes less time and makes ratios agree better than reading it twice, or rewriting some or all of it as well
(`bench/flushes.py`, `bench/twin_sizes.py`); lines that a kernel asked L2 to keep do not outlive it (`bench/kept_lines.py`).

Kernels go to the GPU in a rhythm: how long it takes from a start event to a kernel and from there to the end event comes back after a few
launches, by half a microsecond (`bench/cadence.py`). Where rounds keep in step with that, blocks differ by more than their rounds do. So a
random number of kernels that do next to nothing is launched ahead of every round. Events, or kernels in a CUDA graph, do not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from referee.measuring.stats import Floats

FLUSH_FACTOR = 3
READS = 1
LEAST_LEAD, MOST_LEAD = 8, 64  # flushes
STEPS = 16  # kernels ahead of a round are fewer; fewer than 8 leave some of the rhythm


@dataclass(frozen=True)
class Entry:
    """One contestant. `call(i)` queues its work for round `i` on the current stream and may return what must stay alive.

    `before(i)` and `after(i)`, if any, are queued ahead of the flush and behind the call, and not timed. `rounds` says in how many of a
    block's rounds, from the first, it takes part; None is all.
    """

    name: str
    call: Callable[[int], object]
    before: Callable[[int], object] | None = None
    after: Callable[[int], object] | None = None
    rounds: int | None = None


@dataclass(frozen=True)
class Block:
    """Microseconds by entry name, one per round, NaN where it took no part or the queue ran dry; `starved` counts the latter."""

    times: dict[str, Floats]
    starved: int


class Flush:
    """Evicts everything from L2."""

    def __init__(self, l2_bytes: int, *, factor: int = FLUSH_FACTOR, reads: int = READS) -> None:
        self.l2_bytes, self._reads = l2_bytes, reads
        self._buffer = torch.zeros(factor * max(1, l2_bytes // 4), dtype=torch.int32, device="cuda")
        self._sink = torch.zeros((), dtype=torch.int32, device="cuda")
        # Queueing a graph takes the host less time than queueing its kernels.
        self._graph = torch.cuda.CUDAGraph()
        self.queue()
        with torch.cuda.graph(self._graph):
            self.queue()

    @property
    def bytes(self) -> int:
        """Bytes that one pass reads."""
        return self._buffer.numel() * 4

    def __call__(self) -> None:
        self._graph.replay()

    def queue(self) -> None:
        """Queue the flush kernel by kernel."""
        for _ in range(self._reads):
            torch.amax(self._buffer, dim=0, out=self._sink)


def wait_until_idle() -> None:
    """Wait for the current stream by asking it: a blocking wait was measured to add 2.4 ms on a virtual machine."""
    stream = torch.cuda.current_stream()
    while not stream.query():
        pass


def run_block(
    entries: Sequence[Entry],
    rounds: int,
    flush: Flush,
    generator: np.random.Generator,
    *,
    during: Callable[[], None],
    steps: int = STEPS,
) -> Block:
    """Time every entry once in each of its rounds, in random order; `during` is called while the device is still busy.

    Ahead of a round fewer than `steps` kernels are queued that do next to nothing.
    """
    orders = _orders(entries, rounds, generator)
    events = [{index: (_event(), _event()) for index in order} for order in orders]
    ahead = generator.integers(steps, size=rounds).tolist()
    dry: set[tuple[int, int]] = set()
    alive: list[object] = []
    lead, step = LEAST_LEAD, stepping()
    stream = torch.cuda.current_stream()
    collecting = gc.isenabled()
    gc.disable()
    try:
        wait_until_idle()
        _get_ahead(flush, lead)
        for number, order in enumerate(orders):
            step(ahead[number])
            for index in order:
                entry, (start, end) = entries[index], events[number][index]
                if entry.before:
                    entry.before(number)
                flush()
                start.record(stream)
                # Results stay alive until the block ends, so that no two calls of it get the same addresses for theirs.
                alive.append(entry.call(number))
                end.record(stream)
                if start.query():
                    dry.add((number, index))
                if entry.after:
                    entry.after(number)
                if (number, index) in dry:
                    _get_ahead(flush, lead)
                    lead = min(2 * lead, MOST_LEAD)
        during()
        wait_until_idle()
    finally:
        if collecting:
            gc.enable()
    micros = np.full((len(entries), rounds), np.nan)
    for number, row in enumerate(events):
        for index, (start, end) in row.items():
            if (number, index) not in dry:
                micros[index, number] = 1000.0 * start.elapsed_time(end)
    return Block({entry.name: times for entry, times in zip(entries, micros, strict=True)}, len(dry))


def _orders(entries: Sequence[Entry], rounds: int, generator: np.random.Generator) -> list[list[int]]:
    """The entries that take part in each round, in random order."""
    orders = generator.random((rounds, len(entries))).argsort(axis=1).tolist()
    taking = [rounds if entry.rounds is None else entry.rounds for entry in entries]
    return [[index for index in order if number < taking[index]] for number, order in enumerate(orders)]


def stepping() -> Callable[[int], None]:
    """Queues so many kernels of one word."""
    word = torch.zeros(1, dtype=torch.int32, device="cuda")

    def step(kernels: int) -> None:
        for _ in range(kernels):
            word.add_(1)

    return step


def _get_ahead(flush: Flush, lead: int) -> None:
    """Queue work that takes the device far longer than the host takes to queue it."""
    for _ in range(lead):
        flush()


def _event() -> Any:
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


def host_times(entry: Entry, repeats: int) -> Floats:
    """Microseconds a caller who polls waits for one call and its result, host work included, caches warm."""
    found = np.empty(repeats)
    for number in range(repeats):
        if entry.before:
            entry.before(number)
        wait_until_idle()
        start = time.perf_counter()
        kept = entry.call(number)
        wait_until_idle()
        found[number] = 1e6 * (time.perf_counter() - start)
        del kept
    return found


def empty_window(flush: Flush, repeats: int = 9) -> float:
    """Median microseconds between two events with nothing between them, under the same protocol."""
    entry = Entry("nothing", lambda _: None)
    times = run_block([entry], repeats, flush, np.random.default_rng(0), during=lambda: None).times["nothing"]
    return float(np.nanmedian(times)) if np.isfinite(times).any() else float("nan")
