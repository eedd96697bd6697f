"""Which processes there are, as the system tells it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path


def living() -> set[int]:
    """The processes that have not ended. A dead process without a `wait` does not count."""
    return {pid for pid, _ in _parents()}


def still_living(pids: set[int], seconds: float = 30.0) -> set[int]:
    """Those of `pids` that live on for `seconds`. The kernel ends the children of a dead process a
    moment later.
    """
    deadline = time.monotonic() + seconds
    while (left := pids & living()) and time.monotonic() < deadline:
        os.sched_yield()
    return left


def processes_below(ancestor: int) -> set[int]:
    """The living processes that `ancestor` started, directly or not, as far as their parents still
    live.
    """
    parents = dict(_parents())
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {ancestor}} - found:
        found |= more
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is being looked at.
        with contextlib.suppress(OSError):
            state, parent = (
                stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            )
            if state not in "ZX":
                yield int(stat.parent.name), int(parent)
