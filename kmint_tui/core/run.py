"""One session in the background: one thread runs it, and another reads its events in slices.

Tokens come by the thousand, so the progress of one draft is merged until the reader takes it.
`ready` is called in the running thread, once after each time that the reader took everything.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kmint_tui import paths
from kmint_tui.core.engine import Engine
from kmint_tui.core.judges import of_referee
from kmint_tui.core.planning import MintOptions, plan
from kmint_tui.core.session import Session
from kmint_tui.errors import KmintError
from kmint_tui.events import MintEvent, Progress
from kmint_tui.history.store import History


@dataclass(frozen=True)
class Step:
    """A step of the preparation before the session exists."""

    text: str


@dataclass(frozen=True)
class Failure:
    """An error that ended the session or a part of it; `fix` says how to go on."""

    title: str
    message: str
    fix: str


@dataclass(frozen=True)
class Ended:
    """The last event."""


RunEvent = MintEvent | Step | Failure | Ended


def failure_of(error: Exception) -> Failure:
    """An error as a title, a message and a fix."""
    if isinstance(error, KmintError):
        return Failure(error.title, error.message, error.fix)
    fix = "try again; `kmint --debug` shows where it happened"
    return Failure("an error in kmint", f"{type(error).__name__}: {error}", fix)


class MintRun:
    """One session: `execute` in one thread; `take`, `stop` and `abandon` in any other."""

    def __init__(self, options: MintOptions, engine: Engine, ready: Callable[[], object]) -> None:
        self.options = options
        self._engine = engine
        self._ready = ready
        self._guard = threading.Lock()
        self._events: list[RunEvent] = []
        self._progress: dict[int, int] = {}
        self._announced = False
        self._session: Session | None = None
        self._stopped = False
        self._abandoned = False
        self.ended = False

    def stopped(self) -> bool:
        """True after a call of `stop` or `abandon`."""
        with self._guard:
            return self._stopped

    def execute(self) -> None:
        """Run the session to its end. Errors become `Failure` events; the last event is `Ended`."""
        try:
            self._execute()
        except Exception as error:
            self.put(failure_of(error))
            self._engine.forget_referee()
        finally:
            self.put(Ended())

    def stop(self) -> None:
        """Stop drafting; the referee still judges the finished drafts."""
        with self._guard:
            self._stopped = True
            session = self._session
        if session is not None:
            session.stop()

    def abandon(self) -> None:
        """Stop drafting and judging; the history keeps the finished drafts."""
        with self._guard:
            self._stopped = self._abandoned = True
            session = self._session
        if session is not None:
            session.abandon()

    def take(self) -> tuple[RunEvent, ...]:
        """All events since the last call, with the progress of each draft merged."""
        with self._guard:
            events, self._events = tuple(self._events), []
            self._progress.clear()
            self._announced = False
        if any(isinstance(event, Ended) for event in events):
            self.ended = True
        return events

    def _execute(self) -> None:
        self.put(Step("checking the request and the model"))
        request = plan(self.options, draw_seed=lambda: secrets.randbelow(2**32))
        if self.stopped():
            return
        self.put(Step("starting the referee"))
        referee = self._engine.referee()
        if self.stopped():
            return
        self.put(Step(f"loading {request.model.id}"))
        smith = self._engine.smith(request.model.file.path)
        session = Session(request, self.put)
        with self._guard:
            self._session = session
            stopped, abandoned = self._stopped, self._abandoned
        if abandoned:
            session.abandon()
        elif stopped:
            session.stop()
        with History(paths.history_file()) as history:
            session.run(smith=smith, judge=of_referee(referee), history=history)
        if session.failure is not None:
            self.put(failure_of(session.failure))

    def put(self, event: RunEvent) -> None:
        """Add an event for the next `take`; any thread may call it."""
        with self._guard:
            place = self._progress.get(event.index) if isinstance(event, Progress) else None
            if isinstance(event, Progress) and place is not None:
                before = self._events[place]
                assert isinstance(before, Progress)
                self._events[place] = Progress(event.index, event.tokens, before.text + event.text)
            else:
                if isinstance(event, Progress):
                    self._progress[event.index] = len(self._events)
                self._events.append(event)
            announce, self._announced = not self._announced, True
        if announce:
            self._ready()
