"""Rounds of timed calls on the device: the mechanics of measuring, without a decision.

Before every call a read of three times the L2 cache's size flushes the cache. No call may wait for
the host: after a call is queued, its start event must still lie in the future. Otherwise the queue
was dry, and the sample is dropped (`Block.starved`). Flushes at the start of a block put the host
ahead, and again whenever the queue was dry. A slow host so costs a few samples and time, but no
call gets a longer flush.

One read takes less time and gives steadier ratios than two reads or a rewrite. Cache lines that a
kernel made persistent do not survive it. docs/timing-notes.md has the measurements.

Launch latencies are periodic: the time from a start event to a kernel, and to the end event,
repeats after a few launches. The amplitude is half a microsecond. Where rounds keep in step with
the period, blocks differ more than their rounds do. So a random number of near-empty kernels
precedes every round. Events, and kernels in a CUDA graph, do not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from referee.timing.stats import Floats

FLUSH_FACTOR = 3
READS = 1
LEAST_LEAD, MOST_LEAD = 8, 64
"""Minimum and maximum number of flushes that put the queue ahead of the device."""
STEPS = 16
"""Upper bound of the near-empty kernels before a round; below 8 some periodicity remains."""


@dataclass(frozen=True)
class Entry:
    """One contestant. `call(i)` queues its work for round `i` and may return objects to keep alive.

    `before(i)` and `after(i)` are queued before the flush and after the call, untimed. `rounds` is
    the number of rounds, from the first, in which it takes part; None is all.
    """

    name: str
    call: Callable[[int], object]
    before: Callable[[int], object] | None = None
    after: Callable[[int], object] | None = None
    rounds: int | None = None


@dataclass(frozen=True)
class Block:
    """Microseconds by entry name, one per round; NaN for no part or a dry queue (`starved`)."""

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
        """Queues the flush kernel by kernel."""
        for _ in range(self._reads):
            torch.amax(self._buffer, dim=0, out=self._sink)


def wait_until_idle() -> None:
    """Polls the current stream until it is idle, because a blocking wait may add 2.4 ms."""
    stream = torch.cuda.current_stream()
    while not stream.query():
        pass


def run_block(
    entries: Sequence[Entry],
    rounds: int,
    flush: Flush,
    generator: np.random.Generator,
    *,
    during: Callable[[], None] = lambda: None,
    steps: int = STEPS,
) -> Block:
    """Times every entry once in each of its rounds, in random order.

    `during` is called while the device is busy. Fewer than `steps` near-empty kernels precede a
    round.
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
                # Results stay alive until the block ends, so that no two calls get the same
                # addresses.
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
    return Block(
        {entry.name: times for entry, times in zip(entries, micros, strict=True)}, len(dry)
    )


def usable_medians(block: Block) -> dict[int, float]:
    """Median microseconds by entry, where names are numbers; none for one without a sample."""
    return {
        int(name): float(np.nanmedian(found))
        for name, found in block.times.items()
        if np.isfinite(found).any()
    }


def _orders(
    entries: Sequence[Entry], rounds: int, generator: np.random.Generator
) -> list[list[int]]:
    orders = generator.random((rounds, len(entries))).argsort(axis=1).tolist()
    taking = [rounds if entry.rounds is None else entry.rounds for entry in entries]
    return [
        [index for index in order if number < taking[index]] for number, order in enumerate(orders)
    ]


def stepping() -> Callable[[int], None]:
    """Queues this many kernels of one word."""
    word = torch.zeros(1, dtype=torch.int32, device="cuda")

    def step(kernels: int) -> None:
        for _ in range(kernels):
            word.add_(1)

    return step


def _get_ahead(flush: Flush, lead: int) -> None:
    for _ in range(lead):
        flush()


def _event() -> Any:
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


def host_times(entry: Entry, repeats: int) -> Floats:
    """Microseconds of a polling caller for one call, with host work and warm caches."""
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
    times = run_block([entry], repeats, flush, np.random.default_rng(0)).times["nothing"]
    return float(np.nanmedian(times)) if np.isfinite(times).any() else float("nan")
