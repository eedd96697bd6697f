"""One running call of a tool, with cancellation and progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kmint_tui.service.work import COUNT_SECONDS, Cancelled


class Call:
    """`report` gets each step in words; it may be called in any thread."""

    def __init__(self, report: Callable[[str], None] = lambda step: None) -> None:
        self._report = report
        self._cancelled = threading.Event()
        self._said = 0.0

    def cancel(self) -> None:
        """End it at its next step or case."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """True once the request is cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise Cancelled once it is cancelled."""
        if self.cancelled:
            raise Cancelled

    def tell(self, step: str) -> None:
        """The next step."""
        self.check()
        self._report(step)

    def count(self, done: int, total: int) -> None:
        """Report the number of finished test cases."""
        self.check()
        now = time.monotonic()
        if now - self._said >= COUNT_SECONDS or done == total:
            self._said = now
            self._report(f"{done} of {total} cases")
