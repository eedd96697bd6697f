"""The main loop: one request to the smith, every finished draft to the referee, everything into the history.

Drafts are judged while others are still being written. Where there is a GPU to time on, drafts are first only checked, and
timed once the smith is silent, because a busy GPU times nothing truly. Neither the smith nor the referee runs in this
process: both are handles on processes of their own.

`Mint.run` yields the events of `events.py` in the thread that iterates; only that thread touches the history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from kmint_tui.errors import EnvironmentUnfit, KmintError, ModelError, UsageError
from kmint_tui.events import Choices, DraftFinished, Finished, Judged, Judging, MintEvent, Notice, Progress, Started, Stopping
from kmint_tui.history.records import NewDraft, State
from kmint_tui.history.store import History
from kmint_tui.minting.drafts import Draft, DraftBook
from kmint_tui.minting.judging import Begun, Broke, Judge, JudgeThreads, Report, Said, Skipped
from kmint_tui.minting.ranking import best, rank, ratio
from kmint_tui.minting.request import Level, MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.smith.events import DraftDone, Event, Failed, Loaded, Note, RunDone, Token

if TYPE_CHECKING:
    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.sampling import Sampling
    from referee.verdict import Verdict


class Drafter(Protocol):
    """What is needed of the smith (`kmint_tui.smith.Smith`)."""

    def draft(
        self, prompt: Prompt | str, drafts: int, *, sampling: Sampling | None = None, seed: int = 0, max_tokens: int = 768
    ) -> Iterator[Event]: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class _SmithEnded:
    """The smith's thread is through; `error` is set when it failed in a way it has no event for."""

    error: Exception | None


@dataclass(frozen=True)
class _Stop:
    """Somebody asked to stop drafting."""


_FAILURES: dict[str, type[KmintError]] = {
    "environment": EnvironmentUnfit,
    "gpu": EnvironmentUnfit,
    "memory": EnvironmentUnfit,
    "model": ModelError,
    "template": ModelError,
    "request": UsageError,
}


class Mint:
    """One session. `times` says that the referee can time on this machine; `judges` is how many drafts it takes at once."""

    def __init__(
        self, request: MintRequest, *, smith: Drafter, judge: Judge, history: History, times: bool = False, judges: int = 2
    ) -> None:
        self.request = request
        self._smith = smith
        self._judge = judge
        self._history = history
        self._times = times and request.level == "full"
        self._threads = judges
        self._inbox: SimpleQueue[Event | Report | _SmithEnded | _Stop] = SimpleQueue()
        self._stopping = threading.Event()
        self._drafts: dict[int, Draft] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._open: set[int] = set()
        self._untimed: list[int] = []
        self._drafting = True
        self._asked_to_stop = False
        self._failure: Exception | None = None
        self._session = 0

    def stop(self) -> None:
        """Stop drafting and keep what is done; from any thread, and from a signal handler."""
        self._inbox.put(_Stop())

    def run(self) -> Iterator[MintEvent]:
        """Run the session to its end; the last event is `Finished`.

        Leaving the iterator early stops the smith and marks the session as stopped. When the smith or the referee fails
        the session still finishes with the drafts that were done, and `failure` says why; it is raised at once when there
        are none.
        """
        began = time.monotonic()
        self._session = self._history.begin(self.request.to_session())
        state: State = "stopped"
        judges = JudgeThreads(self._judge, self.request, self._inbox.put, threads=self._threads)
        try:
            yield Started(self._session, self.request)
            threading.Thread(target=self._pump, name="smith-pump", daemon=True).start()
            book = DraftBook()
            while self._drafting or self._open:
                yield from self._handle(self._inbox.get(), book, judges)
                if not self._drafting and not self._open and self._failure is None:
                    self._submit_for_timing(judges)
            if self._failure is not None and not self._drafts:
                raise self._failure
            state = "failed" if self._failure is not None else "stopped" if self._asked_to_stop else "done"
            yield Finished(self._result(state, time.monotonic() - began))
        except Exception:
            state = "failed"
            raise
        finally:
            self._stopping.set()
            if self._drafting:
                self._smith.cancel()
            self._store(lambda: self._history.finish(self._session, state), judges)
            judges.close()

    @property
    def session_id(self) -> int | None:
        """The session's id in the history; None before it has begun."""
        return self._session or None

    @property
    def failure(self) -> Exception | None:
        """Why the session failed although some drafts were done; None when it did not."""
        return self._failure

    def _pump(self) -> None:
        """Move the smith's events into the inbox; runs in a thread of its own."""
        request = self.request
        error: Exception | None = None
        try:
            events = self._smith.draft(
                request.prompt, request.drafts, sampling=request.sampling, seed=request.seed, max_tokens=request.max_tokens
            )
            for event in events:
                self._inbox.put(event)
                # A stop that came while the model was being loaded found no run to cancel.
                if self._stopping.is_set() and not isinstance(event, (DraftDone, RunDone, Failed)):
                    self._smith.cancel()
        except Exception as caught:
            error = caught
        self._inbox.put(_SmithEnded(error))

    def _handle(self, message: Event | Report | _SmithEnded | _Stop, book: DraftBook, judges: JudgeThreads) -> Iterator[MintEvent]:
        match message:
            case Token(draft=index, tokens=tokens, text=text):
                yield Progress(index, tokens, text)
            case DraftDone():
                yield from self._finished(book.add(message), judges)
            case Loaded(choices=choices) | RunDone(choices=choices) if choices:
                yield Choices(choices)
            case Note(text=text):
                yield Notice(text)
            case Failed(code=code, reason=reason, log=log):
                fix = f"llama.cpp's own words are in {log}" if log else ""
                self._failure = _FAILURES.get(code, KmintError)(reason, fix=fix, title="the smith failed")
            case _SmithEnded(error=error):
                self._drafting = False
                self._failure = self._failure or error
            case _Stop():
                self._asked_to_stop = True
                self._stop_drafting()
                yield Stopping()
            case Begun(index=index):
                yield Judging(index)
            case Said():
                yield from self._judged(message, judges)
            case Broke(index=index, error=error):
                self._open.discard(index)
                self._fail(error, judges)
            case Skipped(index=index):
                self._open.discard(index)

    def _finished(self, draft: Draft, judges: JudgeThreads) -> Iterator[MintEvent]:
        self._drafts[draft.index] = draft
        self._store(lambda: self._history.add_draft(self._session, _row(draft)), judges)
        yield DraftFinished(self._session, draft)
        if draft.finish != "cancelled" and draft.duplicate_of is None:
            self._submit(draft, "correct" if self._times else self.request.level, judges)

    def _submit(self, draft: Draft, level: Level, judges: JudgeThreads) -> None:
        self._open.add(draft.index)
        judges.submit(draft, level)

    def _submit_for_timing(self, judges: JudgeThreads) -> None:
        waiting, self._untimed = self._untimed, []
        for index in waiting:
            self._submit(self._drafts[index], "full", judges)

    def _judged(self, said: Said, judges: JudgeThreads) -> Iterator[MintEvent]:
        index, verdict = said.index, said.verdict
        self._open.discard(index)
        final = not (self._times and said.level == "correct" and verdict.passed)
        self._verdicts[index] = verdict
        self._store(lambda: self._history.set_verdict(self._session, index, verdict.to_json(), ratio=ratio(verdict.timing)), judges)
        yield Judged(self._session, index, verdict, final)
        if not final:
            self._untimed.append(index)
        if verdict.passed and self.request.until == "first" and said.level != "screen":
            judges.drop_waiting()
            self._stop_drafting()

    def _store(self, write: Callable[[], None], judges: JudgeThreads) -> None:
        """Write to the history. A full disk ends the session, but what is known is still handed over in `Finished`."""
        try:
            write()
        except KmintError as error:
            self._fail(error, judges)

    def _fail(self, error: Exception, judges: JudgeThreads) -> None:
        self._failure = self._failure or error
        judges.drop_waiting()
        self._stop_drafting()

    def _stop_drafting(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            if self._drafting:
                self._smith.cancel()

    def _result(self, state: State, seconds: float) -> MintResult:
        drafts = tuple(self._drafts[index] for index in sorted(self._drafts))
        ranking = rank(drafts, self._verdicts)
        return MintResult(self.request, self._session, state, drafts, dict(self._verdicts), ranking, best(ranking, self._verdicts), seconds)


def _row(draft: Draft) -> NewDraft:
    return NewDraft(
        number=draft.index,
        source=draft.source,
        seed=draft.seed,
        temperature=draft.temperature,
        tokens=draft.tokens,
        seconds=draft.seconds,
        finish=draft.finish,
        duplicate_of=draft.duplicate_of,
    )
