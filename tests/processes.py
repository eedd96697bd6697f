"""Which processes there are, as the system tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def living() -> set[int]:
    """All processes that have not ended; one that is dead and that nobody has waited for yet is none."""
    return {pid for pid, _ in _parents()}


def processes_below(ancestor: int) -> set[int]:
    """The living processes that `ancestor` started, directly or not, as far as their parents still live."""
    parents = dict(_parents())
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {ancestor}} - found:
        found |= more
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is being looked at.
        with contextlib.suppress(OSError):
            state, parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                yield int(stat.parent.name), int(parent)
