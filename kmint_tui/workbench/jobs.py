"""Long work besides the session: what is under way, and a way to end each piece of it, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class Cancelled(Exception):
    """Somebody cancelled the work; what was done before stays as it was."""


class Job:
    """One piece of work, begun where it was asked for; as a context manager around the work itself, it ends there.

    `on_cancel` ends work that waits for something. Nothing is lost by ending `light` work; `timing` work measures times, which
    other work on the GPU would disturb.
    """

    def __init__(
        self, title: str, ended: Callable[[Job], object], on_cancel: Callable[[], object] | None, *, light: bool, timing: bool
    ) -> None:
        self.title, self.light, self.timing = title, light, timing
        self._cancelled = threading.Event()
        self._ended, self._on_cancel = ended, on_cancel

    @property
    def cancelled(self) -> bool:
        """True once somebody asked to end it."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Have the next `go_on` raise."""
        self._cancelled.set()
        if self._on_cancel is not None:
            self._on_cancel()

    def go_on(self) -> None:
        """Called by the work between its steps. Raises Cancelled."""
        if self.cancelled:
            raise Cancelled(self.title)

    def end(self) -> None:
        """The work is over; it does not matter if this is said twice."""
        self._ended(self)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


class Jobs:
    """All work that was begun and has not ended. `changed` is called, in whatever thread, when that changes."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._guard = threading.Lock()
        self._jobs: list[Job] = []

    @property
    def titles(self) -> tuple[str, ...]:
        """What is under way."""
        with self._guard:
            return tuple(job.title for job in self._jobs)

    @property
    def weighty(self) -> tuple[str, ...]:
        """What is under way and would lose something by an early end."""
        with self._guard:
            return tuple(job.title for job in self._jobs if not job.light)

    @property
    def timing(self) -> str | None:
        """What is measuring times now, if anything is."""
        with self._guard:
            return next((job.title for job in self._jobs if job.timing), None)

    def begin(self, title: str, cancelled: Callable[[], object] | None = None, *, light: bool = False, timing: bool = False) -> Job:
        """A job that counts as under way until its work is over."""
        job = Job(title, self._end, cancelled, light=light, timing=timing)
        with self._guard:
            self._jobs.append(job)
        self._changed()
        return job

    def cancel_all(self) -> None:
        """Ask all of them to end."""
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
