"""The devices of this host: one worker process for each, with that device alone visible.

A job waits here until a worker is free for it. The jobs of a lost worker go to its replacement.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import IO, Any

from kmint_tui.core.farm.devices import CPU, Device
from kmint_tui.core.farm.farm import Answer, Count, Tell
from kmint_tui.core.farm.job import MOST_BYTES, Job, opened
from kmint_tui.core.farm.work import VISIBLE
from kmint_tui.documents import BadDocument, compact, parse_json
from kmint_tui.errors import EnvironmentUnfit, KmintError
from referee.timing.spent import added

MODULE = "kmint_tui.core.farm.local_worker"
ATTEMPTS = 3
END_SECONDS = 20.0


@dataclass
class _Ticket:
    """A job that is not done, with the callbacks and the future for its result."""

    job: Job
    tell: Tell
    count: Count
    future: Future[Answer] = field(default_factory=Future)
    attempts: int = 0
    others: str = ""


class LocalFarm:
    """One worker process a device, started at its first job. A context manager.

    `at_once` is the number of jobs that one worker does at a time. Timing within one worker is
    exclusive in any case.
    """

    def __init__(self, devices: Sequence[Device], *, at_once: int = 1) -> None:
        self.device = devices[0].name
        self._lock = threading.RLock()
        self._waiting: deque[_Ticket] = deque()
        self._workers = [_Worker(self, device, at_once) for device in devices]
        self._closed = False

    @property
    def devices(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def free(self) -> int:
        """The number of workers without a job."""
        with self._lock:
            return sum(not worker.busy for worker in self._workers)

    @property
    def places(self) -> int:
        """The number of jobs that run at once."""
        return sum(worker.at_once for worker in self._workers)

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the work of all devices."""
        return added(*(spent for worker in self._workers for spent in worker.spent))

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def submit(
        self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
    ) -> Future[Answer]:
        """Begin a job, or let it wait for a free worker."""
        ticket = _Ticket(job, tell, count)
        with self._lock:
            self._waiting.append(ticket)
            self._give_out()
        return ticket.future

    def __enter__(self) -> LocalFarm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closed = True
            left = [*self._waiting, *(one for worker in self._workers for one in worker.open())]
            self._waiting.clear()
        for worker in self._workers:
            worker.close()
        for ticket in left:
            ticket.future.cancel()

    def _give_out(self) -> None:
        """Give waiting jobs to the least busy workers. The caller holds the lock."""
        while self._waiting and not self._closed:
            worker = min(self._workers, key=lambda one: one.busy / one.at_once)
            if worker.busy >= worker.at_once:
                return
            ticket = self._waiting.popleft()
            ticket.others = self._others(worker)
            worker.give(ticket)

    def _others(self, worker: _Worker) -> str:
        """What the other devices of this command do now."""
        busy = [one.device.title for one in self._workers if one is not worker and one.busy]
        return f"at work: {', '.join(busy)}" if busy else "idle"

    def ended(self, worker: _Worker, ticket: _Ticket, said: dict[str, Any]) -> None:
        """A worker has answered."""
        with self._lock:
            after = self._others(worker)
            self._give_out()
        others = ticket.others if ticket.others == after else f"{ticket.others}; then {after}"
        try:
            done = Answer(opened(said), f"{worker.device.title} of {self.devices}; others {others}")
        except KmintError as error:
            _fail(ticket, error)
        else:
            if ticket.future.set_running_or_notify_cancel():
                ticket.future.set_result(done)

    def lost(self, worker: _Worker, tickets: Sequence[_Ticket]) -> None:
        """A worker has ended with jobs open: they are done again, each a few times at most."""
        with self._lock:
            if self._closed:
                return
            again = [one for one in tickets if one.attempts < ATTEMPTS]
            self._waiting.extendleft(reversed(again))
            self._give_out()
        for ticket in tickets:
            if ticket.attempts >= ATTEMPTS:
                what = f"the worker of {worker.device.title} was lost {ATTEMPTS} times with one job: {worker.last_words}"
                _fail(ticket, EnvironmentUnfit(what, title="worker lost"))


def _fail(ticket: _Ticket, error: KmintError) -> None:
    if ticket.future.set_running_or_notify_cancel():
        ticket.future.set_exception(error)


class _Worker:
    """One process, replaced when it is lost. The farm's lock guards all of it."""

    def __init__(self, farm: LocalFarm, device: Device, at_once: int) -> None:
        self.device, self.at_once = device, at_once
        self._farm = farm
        self._open: dict[int, _Ticket] = {}
        self._last = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.last_words = ""
        self.spent: list[dict[str, float]] = []
        """Seconds by part, for each process so far."""

    @property
    def busy(self) -> int:
        """The number of open jobs."""
        return len(self._open)

    @property
    def pid(self) -> int | None:
        """The process id; None before the first job."""
        return self._process.pid if self._process is not None else None

    def open(self) -> list[_Ticket]:
        """The jobs that are not answered."""
        return list(self._open.values())

    def give(self, ticket: _Ticket) -> None:
        """Send a job; the farm's lock is held."""
        if self._process is None:
            self._process = self._started()
        process = self._process
        self._last += 1
        ticket.attempts += 1
        self._open[self._last] = ticket
        text = compact({"id": self._last, "job": asdict(ticket.job)})
        assert process.stdin is not None
        # The reader of a worker that has ended hands its open jobs back.
        with suppress(OSError):
            process.stdin.write(text.encode("utf-8", "backslashreplace") + b"\n")
            process.stdin.flush()

    def _started(self) -> subprocess.Popen[bytes]:
        from referee import python_child

        self.spent.append({})
        log = tempfile.TemporaryFile()
        visible = {VISIBLE: self.device.visible if self.device.name != CPU else ""}
        process = subprocess.Popen(
            python_child.module_command(MODULE, str(self.at_once)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **visible},
            cwd=python_child.WORKING_FOLDER,
            start_new_session=True,
        )
        threading.Thread(
            target=self._read, args=(process, log), name=f"device-{self.device.index}", daemon=True
        ).start()
        return process

    def _read(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        assert process.stdout is not None and process.stdin is not None
        for text in process.stdout:
            try:
                message = parse_json(text, most_bytes=MOST_BYTES)
            except BadDocument:
                break
            self._heard(message)
        process.kill()
        code = process.wait()
        with process.stdout, log, suppress(OSError):
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip().splitlines()
            self.last_words = said[-1] if said else f"it ended with {code}"
            process.stdin.close()
        with self._farm._lock:
            tickets = self.open()
            self._open.clear()
            self._process = None
        self._farm.lost(self, tickets)

    def _heard(self, message: dict[str, Any]) -> None:
        with self._farm._lock:
            ticket = self._open.get(message["id"])
            if "answer" in message:
                self._open.pop(message["id"], None)
                self.spent[-1] = message["spent"]
        if ticket is None:
            return
        if "doing" in message:
            ticket.tell(str(message["doing"]))
        elif "cases" in message:
            ticket.count(*message["cases"])
        else:
            self._farm.ended(self, ticket, message["answer"])

    def close(self) -> None:
        """End the process: it ends at the end of its stdin, or is killed."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
