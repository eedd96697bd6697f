"""Wall time and peak memory of a command and all its children, page cache apart.

Every few milliseconds the process tree is read from /proc. `anonymous` is RssAnon + RssShmem summed
over the tree: memory that only this command can give back. `resident` adds RssFile: mapped files,
which the kernel may drop at any time. The kernel's own ru_maxrss of the largest process, with
mapped files, checks the sampling. It never falls below the size of the process that starts the
command. Linux only.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.01
_KINDS = {"RssAnon": "anonymous", "RssShmem": "anonymous", "RssFile": "file"}


@dataclass(frozen=True)
class Measured:
    """One command's cost: seconds and MB (10^6 bytes), with its exit status and everything it
    printed.
    """

    seconds: float
    anonymous_mb: float
    resident_mb: float
    max_rss_mb: float
    status: int
    output: str

    def figures(self) -> dict[str, float]:
        """The numbers alone."""
        return {
            "seconds": round(self.seconds, 2),
            "peak_anonymous_mb": round(self.anonymous_mb, 1),
            "peak_resident_mb": round(self.resident_mb, 1),
            "max_rss_of_largest_process_mb": round(self.max_rss_mb, 1),
        }


def measure(command: Sequence[str], log: Path) -> Measured:
    """Run `command` to its end; its output goes to `log`."""
    peak_anonymous = peak_resident = 0
    with log.open("wb") as output:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while True:
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            if ended:
                break
            anonymous, file = _tree(child.pid)
            peak_anonymous, peak_resident = (
                max(peak_anonymous, anonymous),
                max(peak_resident, anonymous + file),
            )
            time.sleep(_INTERVAL)
        seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    return Measured(
        seconds,
        peak_anonymous / 1e6,
        peak_resident / 1e6,
        usage.ru_maxrss * 1024 / 1e6,
        child.returncode,
        log.read_text(errors="replace"),
    )


def _tree(root: int) -> tuple[int, int]:
    """(anonymous, file) bytes of a process and its descendants; processes that are gone count
    nothing.
    """
    totals = {"anonymous": 0, "file": 0}
    for pid in _descendants(root):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(":")
            if key in _KINDS:
                totals[_KINDS[key]] += int(value.split()[0]) * 1024
    return totals["anonymous"], totals["file"]


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = [
            child
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return
    for child in children:
        yield from _descendants(int(child))


def processor() -> str:
    """The processor as the kernel calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
