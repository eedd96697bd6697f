"""`kmint judge --watch`: finds the saves of a file by its size and its time of change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_SECONDS = 0.25

Waiter = Callable[[], bool]
"""Waits before the next look at the file; False ends the watch."""

State = tuple[int, int, int] | None


def poll() -> bool:
    """The usual waiter, which ends with Ctrl-C only."""
    time.sleep(POLL_SECONDS)
    return True


def saves(file: Path, wait: Waiter) -> Iterator[None]:
    """Yields at once, and then at every save; a file that is away for a moment is no save.

    An editor that writes in two steps is seen once it has been quiet for one wait.
    """
    judged: State = _state(file)
    yield
    while wait():
        now = _state(file)
        if now is None or now == judged:
            continue
        while wait() and (later := _state(file)) != now:
            now = later
        if now is not None and now != judged:
            judged = now
            yield


def _state(file: Path) -> State:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
