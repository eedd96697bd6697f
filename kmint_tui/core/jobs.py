"""Background work other than the session: a list of it, and a way to cancel each piece.

Any thread may use these classes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class Cancelled(Exception):
    """The user cancelled the work; earlier results stay."""


class Job:
    """One piece of work. As a context manager around the work, it ends with the block.

    `on_cancel` wakes work that waits. Cancelling `light` work loses nothing. `timing` work measures
    times, which other work on the GPU would disturb.
    """

    def __init__(
        self,
        title: str,
        ended: Callable[[Job], object],
        on_cancel: Callable[[], object] | None,
        *,
        light: bool,
        timing: bool,
    ) -> None:
        self.title, self.light, self.timing = title, light, timing
        self._cancelled = threading.Event()
        self._ended, self._on_cancel = ended, on_cancel

    @property
    def cancelled(self) -> bool:
        """True after a call of `cancel`."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Have the next `go_on` raise."""
        self._cancelled.set()
        if self._on_cancel is not None:
            self._on_cancel()

    def go_on(self) -> None:
        """The work calls this between its steps. Raises Cancelled."""
        if self.cancelled:
            raise Cancelled(self.title)

    def end(self) -> None:
        """Mark the work as over; a second call does nothing."""
        self._ended(self)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class Jobs:
    """All work that has not ended. `changed` is called, in any thread, at every change."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._guard = threading.Lock()
        self._jobs: list[Job] = []

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of all work."""
        with self._guard:
            return tuple(job.title for job in self._jobs)

    @property
    def weighty(self) -> tuple[str, ...]:
        """The titles of the work that an early end would interrupt with a loss."""
        with self._guard:
            return tuple(job.title for job in self._jobs if not job.light)

    @property
    def timing(self) -> str | None:
        """The title of the work that measures times now; None without one."""
        with self._guard:
            return next((job.title for job in self._jobs if job.timing), None)

    def begin(
        self,
        title: str,
        cancelled: Callable[[], object] | None = None,
        *,
        light: bool = False,
        timing: bool = False,
    ) -> Job:
        """A job that counts as running until its work is over."""
        job = Job(title, self._end, cancelled, light=light, timing=timing)
        with self._guard:
            self._jobs.append(job)
        self._changed()
        return job

    def cancel_all(self) -> None:
        """Cancel every job."""
        with self._guard:
            jobs = tuple(self._jobs)
        for job in jobs:
            job.cancel()

    def _end(self, job: Job) -> None:
        with self._guard:
            known = job in self._jobs
            if known:
                self._jobs.remove(job)
        if known:
            self._changed()
