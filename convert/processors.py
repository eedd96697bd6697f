"""The number of processors that this process may use, within the share of its container.

More threads do harm: llama.cpp's threads wait for one another by spinning, and so take time from
working ones. Limits: the container's share is read where cgroup 2 shows it.
"""

from __future__ import annotations

import os
from pathlib import Path

_SHARE = Path("/sys/fs/cgroup/cpu.max")


def usable_processors() -> int:
    """Number of usable processors, at least 1."""
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        time, period, *_ = _SHARE.read_text(encoding="ascii").split()
        return max(1, min(bound, int(time) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or one without a limit ("max")
        return bound
