"""One replay worker that outlives candidates: started on demand and replaced after a failure.

A crash, a missed deadline or a lost context costs only the current candidate. If the candidate is
not the cause, the replacement gets the request once more. This side loads neither CUDA nor torch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from referee.gpu import wire
from referee.gpu.worker_process import Device, WorkerLost, WorkerProcess

FIRST_STEP_SECONDS = 180.0
MODULE = "referee.gpu.replay_worker"
WAITING = "waiting for the worker"
"""The part of the time in which callers wait for the requests of others."""


class ReplayerError(RuntimeError):
    """The referee's machinery failed; the candidate's quality stays unknown."""


class HostBusy(ReplayerError):
    """A busy machine kept the worker from its time; the message names the remedy."""


class WarmWorker:
    """One worker. Construction starts nothing. A caller of `ask` holds `turn`; other methods need
    no lock.

    `started` counts processes, `requests` counts requests, `seconds` is their total time. `spent`
    has the seconds of each part of the processes' work, and of the wait for a turn.
    """

    def __init__(self, cache: Path, device: Device) -> None:
        self.turn = threading.Lock()
        self.interrupts = 0
        self.started = 0
        self.requests = 0
        self.seconds = 0.0
        self.asking = False
        self.spent: dict[str, float] = {}
        self._counted: dict[str, float] = {}
        self._cache, self._device = cache, device
        self._process: WorkerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The running process's id; None if none runs."""
        process = self._process
        return process.pid if process and process.alive else None

    def ask(self, framed: bytes, interrupts: int) -> wire.Message:
        """Sends one framed request to a live process; `interrupts` is the count at the time of the
        request.

        Raises WorkerLost if a candidate's kernel ran too long, ReplayerError if the machinery
        fails, HostBusy if the machine was too busy; not for an answer that reports a failure.
        """
        # Written in this order, so that a reader in the opposite order misses nothing.
        self.asking, began = True, perf_counter()
        self.requests += 1
        try:
            return self._asked(framed, interrupts)
        finally:
            self.asking = False
            self.seconds += perf_counter() - began

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Holds `turn`; the wait for it counts in `spent`."""
        began = perf_counter()
        with self.turn:
            self.spend(WAITING, perf_counter() - began)
            yield

    def start(self) -> None:
        """Starts a process that loads its libraries, unless a request is running."""
        if self.turn.acquire(blocking=False):
            try:
                self._running()
            finally:
                self.turn.release()

    def interrupt(self) -> None:
        """Ends the process from another thread; its requests raise ReplayerError."""
        self.interrupts += 1
        if process := self._process:
            process.kill()

    def close(self) -> None:
        """Ends the process after the current request. The object can be used again."""
        with self.turn:
            self._drop()

    def _asked(self, framed: bytes, interrupts: int) -> wire.Message:
        for attempt in (1, 2):
            process = self._running()
            # Compared after the process is known: a later interrupt ends this very process.
            if self.interrupts != interrupts:
                raise ReplayerError("interrupted")
            try:
                answer = process.request(framed, seconds=FIRST_STEP_SECONDS)
            except WorkerLost as lost:
                self._replace()
                if lost.how == "starved":
                    raise HostBusy(lost.detail) from lost
                if lost.how == "timeout" and lost.step.whose == "candidate":
                    raise
                if attempt == 2 and self.interrupts == interrupts:
                    raise ReplayerError(str(lost)) from lost
                continue
            self._count(answer.pop("spent", {}))
            if answer.get("ends"):
                self._replace()
            if "broken" in answer:
                answer["broken"] = (
                    f"the replay worker failed while {process.step.text}: {answer['broken']}"
                )
            return answer
        raise ReplayerError("interrupted")

    def spend(self, part: str, seconds: float) -> None:
        """Adds to a part of `spent`."""
        self.spent[part] = self.spent.get(part, 0.0) + seconds

    def _count(self, spent: dict[str, float]) -> None:
        for part, seconds in spent.items():
            self.spend(part, seconds - self._counted.get(part, 0.0))
        self._counted = spent

    def _running(self) -> WorkerProcess:
        if self._process is None or not self._process.alive:
            self._drop()
            self._process = WorkerProcess(self._cache, MODULE, self._device)
            self._counted = {}
            self.started += 1
        return self._process

    def _replace(self) -> None:
        """Starts the next process at once, because loading torch takes seconds."""
        self._drop()
        self._running()

    def _drop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
