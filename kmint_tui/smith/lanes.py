"""Lanes: the drafts of a run shared out among several contexts of one model, each driven by a thread of its own.

On a GPU, choosing tokens on the host and the small kernels of one lane are hidden behind another's work. But every lane reads
the weights and the prompt for itself, so where reading is what takes the time, lanes lose: their number is measured when the
model is loaded (see `tuning.py`). Which draft runs in which lane depends on its number alone, never on the clock.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kmint_tui.smith.decoder import Decoder
from kmint_tui.smith.events import Choice, Event, Note, RunDone
from kmint_tui.smith.native import NativeError
from kmint_tui.smith.run import Job
from kmint_tui.smith.shares import crowded, lanes_for, merged

Emit = Callable[[Sequence[Event]], None]


class Lanes:
    """Runs jobs, one at a time, each in up to as many lanes as there are decoders. The first lane is the caller's thread."""

    def __init__(self, decoders: Sequence[Decoder], *, max_cells: int | None = None, free: Callable[[], int] | None = None) -> None:
        """`max_cells` bounds the caches of all lanes together; `free` tells how many bytes are left where they lie."""
        self._decoders, self._max_cells, self._free = tuple(decoders), max_cells, free
        self._most, self._why = len(self._decoders), ""

    def abort(self) -> None:
        """Make decodes under way on the CPU give up; callable from another thread."""
        for decoder in self._decoders:
            decoder.abort()

    def close(self) -> None:
        """Free the contexts."""
        self._close_from(0)

    def run(self, job: Job, emit: Emit, cancelled: Callable[[], bool]) -> RunDone:
        """Draft. Events go to `emit`, the last of them is also returned. Raises NativeError; drafts already reported stay valid.

        What goes wrong in one lane stops the others.
        """
        started = time.perf_counter()
        count, why = self._prepared(job, emit)
        choices = (Choice("lanes", str(count), why),) if count < lanes_for(job.drafts, len(self._decoders)) else ()
        run = _Run(count, choices, emit, cancelled)

        def work(decoder: Decoder, part: Job) -> None:
            try:
                decoder.run(part, run.emit, run.stopped, started=started, prompt_read=run.begin)
            except BaseException as error:
                run.fail(error)

        first, *further = self._shares(job, count)
        with ThreadPoolExecutor(count, thread_name_prefix="lane") as pool:
            try:
                for share in further:
                    pool.submit(work, *share)
                work(*first)
            except BaseException as error:
                run.fail(error)
        return run.outcome()

    def _shares(self, job: Job, count: int) -> list[tuple[Decoder, Job]]:
        """What each of `count` lanes does of a job."""
        return [(self._decoders[lane], replace(job, lane=lane, lanes=count)) for lane in range(count)]

    def _prepared(self, job: Job, emit: Emit) -> tuple[int, str]:
        """Make all contexts before anything is decoded. Returns the number of lanes, and why there are not more of them.

        What the memory has no room for is not tried again by later runs.
        """
        count, why = self._within_bound(job)
        most, made = count, False
        while True:
            try:
                for decoder, share in self._shares(job, count):
                    before = decoder.context
                    made |= decoder.prepare(share) is not before
                # Contexts at hand are kept: by now it may be the referee itself that uses its room.
                if made and count > 1 and self._free is not None and (words := crowded(self._free())):
                    raise NativeError("memory", words)
                break
            except NativeError as error:
                idle = any(decoder.context for decoder in self._decoders[count:])
                if error.code != "memory" or (count == 1 and not idle):
                    raise
                if not idle:
                    count, why = count - 1, error.reason
                self._close_from(count)
        if count < most:
            self._most, self._why = count, why
            emit([Note(f"drafts are made in {count} instead of {most} lanes from now on: {why}")])
        return count, why

    def _within_bound(self, job: Job) -> tuple[int, str]:
        """How many lanes may be used, and why not more: there must be room in the caches for all of every draft."""
        count, why = lanes_for(job.drafts, self._most), self._why
        if self._max_cells is None:
            return count, why
        while count > 1 and (cells := sum(decoder.cells(share) for decoder, share in self._shares(job, count))) > self._max_cells:
            count, why = count - 1, f"{count} lanes take a cache of {cells} tokens, and {self._max_cells} are allowed"
        self._close_from(count)
        held = [max(decoder.cells(share), decoder.context.cells if decoder.context else 0) for decoder, share in self._shares(job, count)]
        if count > 1 and sum(held) > self._max_cells:
            self.close()
        return count, why

    def _close_from(self, lane: int) -> None:
        for decoder in self._decoders[lane:]:
            decoder.close()


class _Run:
    """What the lanes of one run share: the way out, the wish to stop, and what has become of each."""

    def __init__(self, lanes: int, choices: Sequence[Choice], emit: Emit, cancelled: Callable[[], bool]) -> None:
        self._lanes, self._choices, self._emit, self._cancelled = lanes, choices, emit, cancelled
        self._guard = threading.Lock()
        self._ended: list[RunDone] = []
        self._errors: list[BaseException] = []
        self._done: RunDone | None = None
        self._start = threading.Barrier(lanes)

    def begin(self) -> None:
        """Wait until every lane has read the prompt: a cancel of drafts in progress must not wait for a lane that still reads."""
        with contextlib.suppress(threading.BrokenBarrierError):
            self._start.wait()

    def stopped(self) -> bool:
        """Whether lanes are to stop."""
        return bool(self._errors) or self._cancelled()

    def fail(self, error: BaseException) -> None:
        """A lane ended by an error."""
        self._errors.append(error)
        self._start.abort()

    def emit(self, events: Sequence[Event]) -> None:
        """Send a lane's events. The one that ends a lane is held back; the last lane's ends the run."""
        with self._guard:
            last = events[-1]
            if isinstance(last, RunDone):
                if self._errors:
                    # Nobody cancelled the drafts that these events give up.
                    return
                self._ended.append(last)
                events = events[:-1]
                if len(self._ended) == self._lanes:
                    self._done = merged(self._ended, self._choices)
                    events = [*events, self._done]
            if events:
                self._emit(events)

    def outcome(self) -> RunDone:
        """How the run ended, once all lanes have; raises what ended it, the gravest of several errors."""
        if self._errors or self._done is None:
            raise min(self._errors, key=_mildness)
        return self._done


def _mildness(error: BaseException) -> int:
    """An engine that is broken comes first, then what should not happen, then what may (no room, an impossible request)."""
    if not isinstance(error, NativeError):
        return 1
    return 0 if error.code == "native" else 2
