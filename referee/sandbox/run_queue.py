"""The times and states of the threads of a process and of its descendants, as Linux reports them.

`/proc/PID/task/TID/schedstat` has the nanoseconds that a thread has run, and those that it has
waited for a processor. Linux adds a wait to the second number only when the thread runs again. Some
containers have no such file, or zeros in it. `stat` then has the processor time in ticks.

Limits: a thread or process that begins and ends between two readings is not seen. Linux before 3.5
and some containers do not list the children of a process; then only its own threads are seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

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
