"""What one job may use, and the kernel's resource limits that hold it to that."""

from __future__ import annotations

import math
import os
import resource
import signal
from dataclasses import dataclass

MAX_DESCRIPTORS = 256
MAX_FILE_BYTES = 1 << 30
THREADS_BEYOND_CPUS = 256
# Exit code of a job that was told that its processor time is up, as a shell would give it.
TIME_UP = 128 + signal.SIGXCPU


@dataclass(frozen=True)
class Limits:
    """What one job may use: wall-clock seconds, bytes of memory beyond the preloaded modules, bytes of result.

    `allow_exec` names the only programs (absolute paths) the job may execute; with none it may not create processes.
    `processor_seconds` of each of its processes are what the kernel allows it; None means four cores' worth of `seconds`. A busy
    machine stretches the wall clock only, so a job that never waits is judged more fairly by its processor time.
    """

    seconds: float
    memory_bytes: int
    output_bytes: int
    allow_exec: tuple[str, ...] = ()
    processor_seconds: float | None = None


def cpu_seconds(limits: Limits) -> int:
    """Processor time after which the kernel ends a job, should its parent not have done so."""
    return int(limits.seconds * 4) + 2 if limits.processor_seconds is None else math.ceil(limits.processor_seconds)


def virtual_bytes() -> int:
    """Size of this process's address space. Raises OSError without /proc."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def apply(limits: Limits, base_bytes: int) -> str:
    """Set this process's limits, but for its threads; `base_bytes` is the address space it starts with. Returns them in words."""
    values = {
        resource.RLIMIT_AS: base_bytes + limits.memory_bytes,
        resource.RLIMIT_CPU: cpu_seconds(limits),
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in values.items():
        # Past its processor time a process is told so. One that goes on is ended well after that: the kernel counts in ticks, and
        # on a busy machine far more of them than the process is said to have used in the end.
        most = value + value // 2 + 1 if kind == resource.RLIMIT_CPU else value
        _set(kind, value, most)
    return "address space, processor time, file size, descriptors, core files"


def limit_threads() -> str:
    """Set how many threads this process's user may have. Returns it in words."""
    threads = (os.cpu_count() or 1) + THREADS_BEYOND_CPUS
    _set(resource.RLIMIT_NPROC, threads, threads)
    return f"{threads} threads"


def threads_are_limited() -> bool:
    """Whether the kernel holds this user to a number of threads: the host's root it does not (`copy_process` in kernel/fork.c).

    To be asked in a process of its own: it is left with a limit of no thread.
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
