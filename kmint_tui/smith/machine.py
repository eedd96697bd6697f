"""The machine's cores and memory speed, and a key that names it in remembered measurements.

Linux answers through /proc and /sys; on other systems the answers are coarser and say so.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_CPUS = Path("/sys/devices/system/cpu")
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cores:
    """Number of physical cores that this process may use, and the source of the number."""

    count: int
    reason: str


def cores() -> Cores:
    """Physical cores among this process's processors, limited by the container's quota."""
    allowed = (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(os.cpu_count() or 1))
    )
    physical = {
        _read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in allowed
    }
    quota = _quota()
    if quota is not None and quota < len(physical):
        return Cores(
            max(1, math.floor(quota)), f"the container may use {quota:g} of {len(physical)} cores"
        )
    return Cores(len(physical), f"{len(physical)} physical cores ({len(allowed)} hardware threads)")


def copy_bandwidth() -> float:
    """Bytes a second that one core reads and writes in a copy larger than its caches."""
    source = np.ones(1 << 23, np.float64)
    target = np.empty_like(source)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


class OtherWork:
    """The processor use of other processes since this object was made."""

    def __init__(self) -> None:
        self._before = _busy_seconds()
        self._own = time.process_time()
        self._start = time.perf_counter()

    def cores(self) -> float:
        """Number of cores that other processes kept busy; 0 when the system does not report it."""
        wall, before, now = time.perf_counter() - self._start, self._before, _busy_seconds()
        if before is None or now is None or wall <= 0:
            return 0.0
        return max(0.0, (now - before - (time.process_time() - self._own)) / wall)


def machine_key() -> str:
    """16 hexadecimal digits that stand for the processor model, its cores and the system."""
    model = next(
        (
            line
            for line in _read(Path("/proc/cpuinfo")).splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    text = f"{model}/{cores().count}/{platform.machine()}/{platform.system()}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def file_key(path: Path) -> str:
    """A key of a model file from its size, time of change, and first and last MiB."""
    state = path.stat()
    digest = hashlib.blake2b(f"{state.st_size}/{state.st_mtime_ns}".encode(), digest_size=8)
    with path.open("rb") as file:
        digest.update(file.read(1 << 20))
        file.seek(max(0, state.st_size - (1 << 20)))
        digest.update(file.read(1 << 20))
    return digest.hexdigest()


def _busy_seconds() -> float | None:
    """Seconds of work of all processors since the start: all times but idle and waiting."""
    fields = _read(Path("/proc/stat")).partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _quota() -> float | None:
    parts = _read(_GROUP / "cpu.max").split()
    return int(parts[0]) / int(parts[1]) if len(parts) == 2 and parts[0].isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
