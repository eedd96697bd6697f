"""The sandbox a job runs in: what it is limited to, and how its process enters."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one job may use: wall-clock seconds, bytes of memory beyond the preloaded modules, bytes of result.

    `allow_exec` names the only programs (absolute paths) the job may execute; with none it may not create processes.
    """

    seconds: float
    memory_bytes: int
    output_bytes: int
    allow_exec: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protection:
    """One layer of the sandbox on this host. `detail` says what it covers, or why it is missing."""

    name: str
    active: bool
    detail: str = ""


class Sandbox:
    """Forks job processes and puts them under limits."""

    def __init__(self) -> None:
        self._base = tempfile.mkdtemp(prefix="kmint-")
        self.protections: tuple[Protection, ...] = (Protection("rlimits", True),)

    @property
    def base(self) -> str | None:
        """Directory on the host that holds the scratch directories, if there is one."""
        return self._base

    def fork(self) -> int:
        """As os.fork."""
        return os.fork()

    def enter(self, limits: Limits) -> str:
        """Called in the child: apply every limit. Returns the scratch directory."""
        scratch = os.path.join(self._base, str(os.getpid()))
        os.mkdir(scratch, 0o700)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, used + limits.memory_bytes)
        _limit(resource.RLIMIT_CPU, cpu_seconds(limits))
        _limit(resource.RLIMIT_CORE, 0)
        return scratch

    def clean(self, pid: int) -> None:
        """Remove what the job with this process id left behind."""
        shutil.rmtree(os.path.join(self._base, str(pid)), ignore_errors=True)

    def close(self) -> None:
        """Remove the base directory."""
        shutil.rmtree(self._base, ignore_errors=True)


def cpu_seconds(limits: Limits) -> int:
    """Processor time after which the kernel ends a job, should its parent not have done so: four cores' worth."""
    return int(limits.seconds * 4) + 2


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def keep_only(fds: Sequence[int]) -> None:
    """Close every descriptor but these and 0, 1, 2."""
    low = 3
    for fd in sorted(fds):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def reset_signals() -> None:
    """Undo the server's own handlers."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
