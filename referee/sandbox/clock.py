"""The clock of a job: it counts the time that the job could use, and not the time that a busy
machine took from it.

A right kernel must not be rejected because other jobs kept the processors. So time in which a
thread of the job was ready, and waited for a processor, does not count. Time that the job ran
counts in any case, so a job cannot stop the clock by threads that wait for each other. A job that
sleeps, or waits for a lock, is not ready: its time counts in full.

`look` tells the two ends apart. "timeout": the job has used its seconds up. "starved": it has not, but
`CEILING` times the seconds have passed by the clock on the wall, so that nothing waits for ever.

Time in which the machine was suspended does not count, because CLOCK_MONOTONIC stands still then. A
long gap between two looks means that kmint's own process was stopped, or had no processor either. Of
such a gap only a little counts, and towards the ceiling no more than the limit. A stopped job gets
its seconds once more.

`/proc/PID/task/TID/schedstat` has the nanoseconds that a thread has run, and those that it has
waited for a processor. Linux adds a wait to the second number only when the thread runs again. Some
containers have no such file, or zeros in it. `stat` then has the processor time in ticks.

Limits: the time in which a hypervisor gave the machine no processor counts. So does time that a job
waits for a disk. Where nothing at all can be read of a job, the load of the machine decides. A
thread or process that begins and ends between two readings is not seen. Linux before 3.5 and some
containers do not list the children of a process; then only its own threads are seen.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

MOST_THREADS = 1024
_TICKS = os.sysconf("SC_CLK_TCK")
_NANO = 1e-9
_USER_TIME, _SYSTEM_TIME = 11, 12
"""Places in `stat` behind the name of the program."""


@dataclass(frozen=True, kw_only=True)
class ThreadTime:
    """Seconds that one thread has run and has waited for a processor so far, and its state.

    `waited` is None where Linux does not count it. `state` is Linux's letter: R for ready or
    running, S for sleeping, T for stopped.
    """

    ran: float
    waited: float | None
    state: str


Reading = Mapping[int, ThreadTime]
"""The threads by their ids; empty if nothing can be read."""


def threads_of(pid: int) -> Reading:
    """The threads of this process and of its descendants, by the ids that this process sees."""
    found: dict[int, ThreadTime] = {}
    waiting = [pid]
    while waiting and len(found) < MOST_THREADS:
        folder = f"/proc/{waiting.pop()}/task"
        try:
            tasks = os.listdir(folder)
        except OSError:
            continue
        for task in tasks:
            one = _thread(f"{folder}/{task}")
            if one is not None:
                found[int(task)] = one
            waiting += map(int, _text(f"{folder}/{task}/children").split())
    return found


def pid_of(descriptor: int) -> int | None:
    """The id that this process sees, of the process behind a process descriptor; None if unknown."""
    for line in _text(f"/proc/self/fdinfo/{descriptor}").splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            # Linux writes 0 or -1 for a process that is not visible from here, or has ended.
            return pid if (pid := int(value)) > 0 else None
    return None


def parsed(stat: str, schedstat: str) -> ThreadTime:
    """A thread from the texts of its two files; `schedstat` may be empty."""
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])
    numbers = [int(number) for number in schedstat.split()]
    # A kernel that does not count writes three zeros, also for a thread that has run.
    if len(numbers) < 3 or (numbers[2] == 0 and ticks):
        return ThreadTime(ran=ticks / _TICKS, waited=None, state=fields[0])
    return ThreadTime(ran=numbers[0] * _NANO, waited=numbers[1] * _NANO, state=fields[0])


def _thread(folder: str) -> ThreadTime | None:
    try:
        return parsed(_text(f"{folder}/stat"), _text(f"{folder}/schedstat"))
    except (ValueError, IndexError):
        # The thread has ended.
        return None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


CEILING = 8.0
"""Factor on the limit for the time by the clock on the wall."""
LOOKS = 64
"""Number of looks at the job within its limit."""
SHORTEST, LONGEST = 0.05, 0.5
"""Bounds of the seconds between two looks."""
LATE = 2.0
"""Factor on the seconds between two looks; more than that never counts at once."""
WORKING, STOPPED = "R", frozenset("TtZX")

TimeUp = Literal["timeout", "starved"]


def machine_is_busy() -> bool:
    """Whether more threads want to run than there are processors."""
    try:
        return os.getloadavg()[0] > len(os.sched_getaffinity(0))
    except OSError:
        return False


class Clock:
    """The clock of one job, from now on. `read` returns the threads of the job."""

    def __init__(
        self,
        seconds: float,
        read: Callable[[], Reading],
        *,
        now: Callable[[], float] = time.monotonic,
        busy: Callable[[], bool] = machine_is_busy,
    ) -> None:
        self.seconds = seconds
        self.counted = 0.0
        """Seconds that count against the limit."""
        self.passed = 0.0
        """Seconds by the clock on the wall."""
        self.ran = 0.0
        """Seconds of processor time that were seen."""
        self._read, self._now, self._busy = read, now, busy
        self._every = min(max(seconds / LOOKS, SHORTEST), LONGEST)
        self._last = now()
        self._before: Reading = {}
        self._owed: dict[int, float] = {}
        self._stopped = 0.0
        self._seen = False

    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._last + self._every - self._now())

    def wait_for(self, descriptor: int) -> TimeUp | None:
        """Wait until the descriptor is readable, or the time is up."""
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not poller.poll(self.pause() * 1000):
            if up := self.look():
                return up
        return None

    def look(self) -> TimeUp | None:
        """Look at the job if it is time to, and say whether its time is up."""
        now = self._now()
        gap = now - self._last
        if gap >= self._every:
            self._last = now
            self.passed += min(gap, self.seconds)
            self._count(gap)
        if self.counted >= self.seconds:
            return "starved" if not self._seen and self._busy() else "timeout"
        return "starved" if self.passed >= CEILING * self.seconds else None

    def words(self) -> str:
        """What a starved job got, and the remedy."""
        return (
            f"the machine was too busy: a process of kmint got {self.ran:.1f} s of processor time "
            f"in {self.passed:.0f} s; run fewer jobs at the same time, and judge again"
        )

    def _count(self, gap: float) -> None:
        elapsed = min(gap, LATE * self._every)
        reading = self._read()
        ran, waited = 0.0, 0.0
        for thread, found in reading.items():
            before = self._before.get(thread)
            used = found.ran - (before.ran if before else 0.0)
            ran += max(0.0, used)
            waited += self._waited(thread, found, before, used, gap)
        if self._stands(reading) and self._stopped < self.seconds:
            self._stopped += elapsed
            waited = elapsed
        self._seen = self._seen or bool(reading)
        self._before = reading
        self._owed = {thread: owed for thread, owed in self._owed.items() if thread in reading}
        self.ran += ran
        self.counted += max(elapsed - min(elapsed, waited), min(elapsed, ran))

    def _waited(
        self, thread: int, found: ThreadTime, before: ThreadTime | None, used: float, gap: float
    ) -> float:
        """Seconds of the gap in which one thread waited for a processor."""
        if found.waited is None:
            return max(0.0, gap - used) if found.state == WORKING else 0.0
        grown = found.waited - ((before.waited or 0.0) if before else 0.0)
        if grown <= 0.0 and used <= 0.0 and found.state == WORKING:
            # It waits still; Linux counts the wait when it ends.
            self._owed[thread] = self._owed.get(thread, 0.0) + gap
            return gap
        known = min(max(grown, 0.0), self._owed.get(thread, 0.0))
        self._owed[thread] = self._owed.get(thread, 0.0) - known
        return max(grown, 0.0) - known

    @staticmethod
    def _stands(reading: Reading) -> bool:
        return bool(reading) and all(one.state in STOPPED for one in reading.values())
