"""What the machine offers the engine: cores, speed of memory, and a key under which measurements are remembered.

Linux answers through /proc and /sys; elsewhere the answers are coarser and say so.
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
    """Physical cores this process may use, and where the number comes from."""

    count: int
    reason: str


def cores() -> Cores:
    """Physical cores among the processors this process may run on, cut down to the container's quota."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    physical = {_read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in allowed}
    quota = _quota()
    if quota is not None and quota < len(physical):
        return Cores(max(1, math.floor(quota)), f"the container may use {quota:g} of {len(physical)} cores")
    return Cores(len(physical), f"{len(physical)} physical cores ({len(allowed)} hardware threads)")


def copy_bandwidth() -> float:
    """Bytes a second that one core reads and writes when it copies a block larger than its caches."""
    source = np.ones(1 << 23, np.float64)
    target = np.empty_like(source)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


class OtherWork:
    """How much of the machine other processes use between making this object and asking."""

    def __init__(self) -> None:
        self._before = _busy_seconds()
        self._own = time.process_time()
        self._start = time.perf_counter()

    def cores(self) -> float:
        """Cores' worth of work that was not ours; 0 when the system does not say."""
        wall, before, now = time.perf_counter() - self._start, self._before, _busy_seconds()
        if before is None or now is None or wall <= 0:
            return 0.0
        return max(0.0, (now - before - (time.process_time() - self._own)) / wall)


def machine_key() -> str:
    """A name for "this kind of machine": processor model, cores and system, as 16 hexadecimal digits."""
    model = next((line for line in _read(Path("/proc/cpuinfo")).splitlines() if line.startswith("model name")), platform.processor())
    text = f"{model}/{cores().count}/{platform.machine()}/{platform.system()}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def file_key(path: Path) -> str:
    """A name for a model file's content without reading all of it: size, time of change, and its first and last MiB."""
    state = path.stat()
    digest = hashlib.blake2b(f"{state.st_size}/{state.st_mtime_ns}".encode(), digest_size=8)
    with path.open("rb") as file:
        digest.update(file.read(1 << 20))
        file.seek(max(0, state.st_size - (1 << 20)))
        digest.update(file.read(1 << 20))
    return digest.hexdigest()


def _busy_seconds() -> float | None:
    """Seconds that all processors together have worked so far (user, nice, system, interrupts, stolen)."""
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
