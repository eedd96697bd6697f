"""One replay worker that outlives candidates: started when first needed, replaced after a crash, a missed deadline or a lost context.

That costs the candidate at hand and nobody else. A worker that dies by something other than the candidate is replaced and asked
again, once. Nothing of CUDA or torch is loaded on this side.
"""

from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter

from referee.device import wire
from referee.device.gpu_worker import Device, WorkerLost, WorkerProcess

FIRST_STEP_SECONDS = 180.0
MODULE = "referee.device.replay_worker"


class ReplayerError(RuntimeError):
    """The referee's own machinery failed; nothing is said of the candidate."""


class WarmWorker:
    """Construction starts nothing. Whoever asks holds `turn`; all else may be done from any thread.

    `started` counts the processes so far, `requests` what was asked, `seconds` is how long that took.
    """

    def __init__(self, cache: Path, device: Device) -> None:
        self.turn = threading.Lock()
        self.interrupts = 0
        self.started = 0
        self.requests = 0
        self.seconds = 0.0
        self.asking = False
        self._cache, self._device = cache, device
        self._process: WorkerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The running process's id; None when none runs."""
        process = self._process
        return process.pid if process and process.alive else None

    def ask(self, framed: bytes, interrupts: int) -> wire.Message:
        """One request, a frame, made when there had been so many `interrupts`, to a live process.

        Raises WorkerLost when a candidate's kernel ran too long, ReplayerError when the machinery fails; not for an answer that says so.
        """
        # In this order, so that who reads them the other way round misses nothing.
        self.asking, began = True, perf_counter()
        self.requests += 1
        try:
            return self._asked(framed, interrupts)
        finally:
            self.asking = False
            self.seconds += perf_counter() - began

    def start(self) -> None:
        """Have a process begin to load what it needs, if nobody is asking."""
        if self.turn.acquire(blocking=False):
            try:
                self._running()
            finally:
                self.turn.release()

    def interrupt(self) -> None:
        """From another thread: end the requests made so far, by ending the process; they raise ReplayerError."""
        self.interrupts += 1
        if process := self._process:
            process.kill()

    def close(self) -> None:
        """End the process, when nobody is asking any more. The object can be used again."""
        with self.turn:
            self._drop()

    def _asked(self, framed: bytes, interrupts: int) -> wire.Message:
        for attempt in (1, 2):
            process = self._running()
            # Looked at after the process: an interrupt that comes later ends this very one.
            if self.interrupts != interrupts:
                raise ReplayerError("interrupted")
            try:
                answer = process.request(framed, seconds=FIRST_STEP_SECONDS)
            except WorkerLost as lost:
                self._replace()
                if lost.how == "timeout" and lost.step.whose == "candidate":
                    raise
                if attempt == 2 and self.interrupts == interrupts:
                    raise ReplayerError(str(lost)) from lost
                continue
            if answer.get("ends"):
                self._replace()
            if "broken" in answer:
                answer["broken"] = f"the replay worker failed while {process.step.text}: {answer['broken']}"
            return answer
        raise ReplayerError("interrupted")

    def _running(self) -> WorkerProcess:
        if self._process is None or not self._process.alive:
            self._drop()
            self._process = WorkerProcess(self._cache, MODULE, self._device)
            self.started += 1
        return self._process

    def _replace(self) -> None:
        """Start the next process at once: loading torch takes seconds, in which other stages can go on."""
        self._drop()
        self._running()

    def _drop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
