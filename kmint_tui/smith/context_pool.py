"""Splits the drafts of a run among several contexts of one model, each driven by its own thread.

On a GPU, the work of one context hides the token choices and small kernels of another. But every
context reads the weights and the prompt for itself. Where reading takes the time, several contexts
lose. Their number is measured when the model is loaded (`tuning.py`). A draft's number alone
decides its context, never the clock. Settings and the JSON documents call a context a lane.
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
from kmint_tui.smith.run import DraftJob
from kmint_tui.smith.split_drafts import contexts_for, gpu_memory_short, merged

Emit = Callable[[Sequence[Event]], None]


class ContextPool:
    """Runs jobs, one at a time, each in at most as many contexts as there are decoders.

    The caller's thread drives the first context.
    """

    def __init__(
        self,
        decoders: Sequence[Decoder],
        *,
        max_cells: int | None = None,
        free: Callable[[], int] | None = None,
    ) -> None:
        """`max_cells` bounds all caches together, in tokens; `free` returns the free bytes on the
        GPU.
        """
        self._decoders, self._max_cells, self._free = tuple(decoders), max_cells, free
        self._most, self._why = len(self._decoders), ""

    def abort(self) -> None:
        """Stop running decodes on the CPU; callable from another thread."""
        for decoder in self._decoders:
            decoder.abort()

    def close(self) -> None:
        """Free the contexts."""
        self._close_from(0)

    def run(self, job: DraftJob, emit: Emit, cancelled: Callable[[], bool]) -> RunDone:
        """Draft. Events go to `emit`; the last of them is also returned.

        Raises NativeError; reported drafts stay valid. An error in one context stops the others.
        """
        started = time.perf_counter()
        count, why = self._prepared(job, emit)
        choices = (
            (Choice("lanes", str(count), why),)
            if count < contexts_for(len(job.wanted), len(self._decoders))
            else ()
        )
        run = _Run(count, choices, emit, cancelled)

        def work(decoder: Decoder, part: DraftJob) -> None:
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

    def _shares(self, job: DraftJob, count: int) -> list[tuple[Decoder, DraftJob]]:
        """The decoder and the part of a job for each of `count` contexts."""
        return [
            (self._decoders[lane], replace(job, lane=lane, lanes=count)) for lane in range(count)
        ]

    def _prepared(self, job: DraftJob, emit: Emit) -> tuple[int, str]:
        """Make all contexts before the first decode. Returns their number and the reason for no
        more.

        A number that did not fit the memory is not tried again by later runs.
        """
        count, why = self._within_bound(job)
        most, made = count, False
        while True:
            try:
                for decoder, share in self._shares(job, count):
                    before = decoder.context
                    made |= decoder.prepare(share) is not before
                # Existing contexts stay: by now the referee itself may use its part of the memory.
                if (
                    made
                    and count > 1
                    and self._free is not None
                    and (words := gpu_memory_short(self._free()))
                ):
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
            emit(
                [
                    Note(
                        f"drafts use {count} instead of {most} llama.cpp contexts from now on: "
                        f"{why}"
                    )
                ]
            )
        return count, why

    def _within_bound(self, job: DraftJob) -> tuple[int, str]:
        """The largest usable number of contexts and the reason for no more.

        The caches must hold every draft at its full length.
        """
        count, why = contexts_for(len(job.wanted), self._most), self._why
        if self._max_cells is None:
            return count, why
        while (
            count > 1
            and (cells := sum(decoder.cells(share) for decoder, share in self._shares(job, count)))
            > self._max_cells
        ):
            count, why = (
                count - 1,
                f"{count} contexts need a cache of {cells} tokens, "
                f"and {self._max_cells} are allowed",
            )
        self._close_from(count)
        held = [
            max(decoder.cells(share), decoder.context.cells if decoder.context else 0)
            for decoder, share in self._shares(job, count)
        ]
        if count > 1 and sum(held) > self._max_cells:
            self.close()
        return count, why

    def _close_from(self, lane: int) -> None:
        for decoder in self._decoders[lane:]:
            decoder.close()


class _Run:
    """The shared state of one run's contexts: output, cancellation, and each outcome."""

    def __init__(
        self, lanes: int, choices: Sequence[Choice], emit: Emit, cancelled: Callable[[], bool]
    ) -> None:
        self._lanes, self._choices, self._emit, self._cancelled = lanes, choices, emit, cancelled
        self._guard = threading.Lock()
        self._ended: list[RunDone] = []
        self._errors: list[BaseException] = []
        self._done: RunDone | None = None
        self._start = threading.Barrier(lanes)

    def begin(self) -> None:
        """Wait until every context has read the prompt; a cancel must not wait for a reader."""
        with contextlib.suppress(threading.BrokenBarrierError):
            self._start.wait()

    def stopped(self) -> bool:
        """True when the contexts must stop."""
        return bool(self._errors) or self._cancelled()

    def fail(self, error: BaseException) -> None:
        """Record the error that ended a context."""
        self._errors.append(error)
        self._start.abort()

    def emit(self, events: Sequence[Event]) -> None:
        """Send events of one context. Its last event is kept; the last context's ends the run."""
        with self._guard:
            last = events[-1]
            if isinstance(last, RunDone):
                if self._errors:
                    # No user cancelled the drafts that these events end.
                    return
                self._ended.append(last)
                events = events[:-1]
                if len(self._ended) == self._lanes:
                    self._done = merged(self._ended, self._choices)
                    events = [*events, self._done]
            if events:
                self._emit(events)

    def outcome(self) -> RunDone:
        """The run's outcome, once all contexts have ended. Raises the most severe error."""
        if self._errors or self._done is None:
            raise min(self._errors, key=_mildness)
        return self._done


def _mildness(error: BaseException) -> int:
    """Sort key: a broken engine, then unexpected errors, then memory and impossible requests."""
    if not isinstance(error, NativeError):
        return 1
    return 0 if error.code == "native" else 2
