"""The limits of one job, and the kernel's resource limits that enforce them."""

from __future__ import annotations

import math
import os
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass

MAX_DESCRIPTORS = 256
MAX_FILE_BYTES = 1 << 30
THREADS_BEYOND_CPUS = 256
# Exit code of a job whose processor time is up, as in a shell.
TIME_UP = 128 + signal.SIGXCPU


@dataclass(frozen=True)
class Limits:
    """The limits of one job: seconds by its clock (`clock.py`), bytes beyond the preloaded modules,
    bytes of result.

    `allow_exec` names the only programs (absolute paths) that the job may execute; with none it may
    not create processes. `processor_seconds` is the kernel's limit for each of its processes; None
    means four cores' worth of `seconds`.
    """

    seconds: float
    memory_bytes: int
    output_bytes: int
    allow_exec: tuple[str, ...] = ()
    processor_seconds: float | None = None


def cpu_seconds(limits: Limits) -> int:
    """Seconds of processor time after which the kernel ends a job, if its parent has not."""
    return (
        int(limits.seconds * 4) + 2
        if limits.processor_seconds is None
        else math.ceil(limits.processor_seconds)
    )


def virtual_bytes() -> int:
    """Bytes of this process's address space. Raises OSError without /proc."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def seconds_used() -> int:
    """Seconds of processor time of this process so far, rounded up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return math.ceil(used.ru_utime + used.ru_stime)


def apply(limits: Limits, base_bytes: int) -> str:
    """Sets this process's limits except for threads, and returns them in words.

    `base_bytes` is the address space at the start.
    """
    set_all(
        {
            resource.RLIMIT_AS: base_bytes + limits.memory_bytes,
            resource.RLIMIT_CPU: cpu_seconds(limits),
            resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
            resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
        }
    )
    return "address space, processor time, file size, descriptors, core files"


def set_all(values: Mapping[int, int]) -> None:
    """Sets this process's limits by kind (`resource.RLIMIT_*`), each at most its hard limit."""
    for kind, value in values.items():
        # The kernel first signals a process past its processor time and ends it well after that. It
        # counts in ticks, on a busy machine far more than the process's reported use.
        most = 2 * value + 1 if kind == resource.RLIMIT_CPU else value
        _set(kind, value, most)


def limit_threads() -> str:
    """Limits the number of threads of this process's user. Returns the limit in words."""
    threads = (os.cpu_count() or 1) + THREADS_BEYOND_CPUS
    _set(resource.RLIMIT_NPROC, threads, threads)
    return f"{threads} threads"


def threads_are_limited() -> bool:
    """Whether the kernel limits this user's threads; not for the host's root (`copy_process` in
    kernel/fork.c).

    Call it in a separate process, which may start no thread afterwards.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
    try:
        pid = os.fork()
    except BlockingIOError:
        return True
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return False


def _set(kind: int, value: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (min(value, allowed), allowed))
