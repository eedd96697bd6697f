"""Which process a session belongs to, so that one that was killed is not taken for one that still runs."""

from __future__ import annotations

import os
from pathlib import Path


def own_process() -> str:
    """This process as host, process id and the clock tick it started at; unique since the machine started."""
    return f"{os.uname().nodename} {os.getpid()} {_started(os.getpid())}"


def is_gone(process: str) -> bool:
    """True when that process certainly runs no more; False for one on another machine, of which nothing is known."""
    parts = process.split()
    if len(parts) != 3 or parts[0] != os.uname().nodename or not parts[1].isdigit():
        return False
    return _started(int(parts[1])) != parts[2]


def _started(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "-"
    # The name in parentheses may hold anything; the start time is the 20th field after it.
    return stat.rpartition(")")[2].split()[19]
