"""One session of the mint loop as the interface runs it: executed in a thread, read in slices from another.

Tokens come by the thousand, so progress of one draft is merged until it is read. `ready` is called, in the executing
thread, when there is something to read after everything before was read.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from kmint_tui import paths
from kmint_tui.cli.planning import Wishes, plan
from kmint_tui.cli.referee import judges, no_gpu_reason
from kmint_tui.errors import KmintError
from kmint_tui.events import MintEvent, Progress
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.workbench.engine import Engine


@dataclass(frozen=True)
class Step:
    """What is being prepared before the session exists."""

    text: str


@dataclass(frozen=True)
class Failure:
    """The session, or a part of it, could not go on; `fix` is a way on."""

    title: str
    message: str
    fix: str


@dataclass(frozen=True)
class Ended:
    """Nothing more comes."""


RunEvent = MintEvent | Step | Failure | Ended


def failure_of(error: Exception) -> Failure:
    """Any error as something a person can act on."""
    if isinstance(error, KmintError):
        return Failure(error.title, error.message, error.fix)
    fix = "try again; `kmint --debug` shows where it happened"
    return Failure("kmint met an error of its own", f"{type(error).__name__}: {error}", fix)


class MintRun:
    """`execute` in one thread; `take`, `stop` and `abandon` from any other."""

    def __init__(self, wishes: Wishes, engine: Engine, ready: Callable[[], object]) -> None:
        self.wishes = wishes
        self._engine = engine
        self._ready = ready
        self._guard = threading.Lock()
        self._events: list[RunEvent] = []
        self._progress: dict[int, int] = {}
        self._announced = False
        self._mint: Mint | None = None
        self._stopped = False
        self._abandoned = False
        self.ended = False

    def stopped(self) -> bool:
        """True once somebody asked to stop."""
        with self._guard:
            return self._stopped

    def execute(self) -> None:
        """Run the session to its end; errors become `Failure` events, the last event is `Ended`."""
        try:
            self._execute()
        except Exception as error:
            self.put(failure_of(error))
            self._engine.forget_referee()
        finally:
            self.put(Ended())

    def stop(self) -> None:
        """Stop drafting; drafts that are done are still judged."""
        with self._guard:
            self._stopped = True
            mint = self._mint
        if mint is not None:
            mint.stop()

    def abandon(self) -> None:
        """Stop drafting and judging; what is done stays in the history."""
        self._abandoned = True
        self.stop()

    def take(self) -> tuple[RunEvent, ...]:
        """Everything since the last call, progress merged by draft."""
        with self._guard:
            events, self._events = tuple(self._events), []
            self._progress.clear()
            self._announced = False
        if any(isinstance(event, Ended) for event in events):
            self.ended = True
        return events

    def _execute(self) -> None:
        self.put(Step("checking the request and the model"))
        request = plan(self.wishes, draw_seed=lambda: secrets.randbelow(2**32))
        if self.stopped():
            return
        self.put(Step("starting the referee"))
        referee = self._engine.referee()
        if self.stopped():
            return
        self.put(Step(f"loading {request.model.id}"))
        smith = self._engine.smith(request.model.file.path)
        with History(paths.history_file()) as history:
            times = no_gpu_reason() is None
            mint = Mint(request, smith=smith, judge=referee, history=history, times=times, judges=judges(), racer=referee)
            with self._guard:
                self._mint = mint
            if self.stopped():
                mint.stop()
            with closing(cast("Generator[MintEvent, None, None]", mint.run())) as events:
                for event in events:
                    self.put(event)
                    if self._abandoned:
                        break
            if mint.failure is not None:
                self.put(failure_of(mint.failure))

    def put(self, event: RunEvent) -> None:
        """Have an event read by the next `take`; from any thread."""
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
