"""The main loop: one request to the smith, every finished draft to the referee, everything into the history.

Drafts are judged while others are still being written. Where there is a GPU to time on, drafts are first only checked, and
timed when the smith is silent, because a busy GPU times nothing truly: after the last round, or, when the first win ends the
session, at once with the smith halted. Every timed verdict says in its environment what the smith was doing meanwhile.

When all is quiet comes what is still to do: another round for rejected drafts, the timing, the sweep of the best kernel's
launch constants. Neither the smith nor the referee runs in this process: both are handles on processes of their own.

`Mint.run` yields the events of `events.py` in the thread that iterates; only that thread touches the history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from kmint_tui.errors import EnvironmentUnfit, KmintError, ModelError, UsageError
from kmint_tui.events import (
    Choices,
    DraftFinished,
    Finished,
    Judged,
    Judging,
    MintEvent,
    Notice,
    Progress,
    RoundStarted,
    Started,
    Stopping,
    Swept,
    Tuning,
)
from kmint_tui.history.records import NewDraft, State
from kmint_tui.history.store import History
from kmint_tui.minting.drafting import Drafter, Drafting, SmithEnded
from kmint_tui.minting.drafts import Draft, DraftBook
from kmint_tui.minting.judging import Begun, Broke, Judge, JudgeThreads, Report, Said, Skipped
from kmint_tui.minting.ranking import best, rank, ratio
from kmint_tui.minting.request import Level, MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.minting.rounds import Batch, first_round, repairs
from kmint_tui.minting.tuning import Racer, Sweep, sweep
from kmint_tui.smith.events import DraftDone, Event, Failed, Loaded, Note, RunDone, Token
from referee.verdict import Verdict

__all__ = ["Drafter", "Mint"]


@dataclass(frozen=True)
class _Stop:
    """Somebody asked to stop drafting."""


@dataclass(frozen=True)
class _SweepEnded:
    """The tuner's thread is through."""

    found: Sweep | Exception


_Message = Event | Report | SmithEnded | _SweepEnded | _Stop

_FAILURES: dict[str, type[KmintError]] = {
    "environment": EnvironmentUnfit,
    "gpu": EnvironmentUnfit,
    "memory": EnvironmentUnfit,
    "model": ModelError,
    "template": ModelError,
    "request": UsageError,
}


class Mint:
    """One session. `times` says that the referee can time on this machine; `judges` is how many drafts it takes at once.

    `racer` holds the races of a request with `tune`; without one, or where nothing is timed, there is no sweep.
    """

    def __init__(
        self,
        request: MintRequest,
        *,
        smith: Drafter,
        judge: Judge,
        history: History,
        times: bool = False,
        judges: int = 2,
        racer: Racer | None = None,
    ) -> None:
        self.request = request
        self._history = history
        self._times = times and request.level == "full"
        self._racer = racer if request.tune and self._times else None
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._drafting = Drafting(smith, request, self._inbox.put)
        self._judges = JudgeThreads(judge, request, self._inbox.put, threads=judges, silence=self._drafting.silence)
        self._book = DraftBook()
        self._batches: dict[int, Batch] = {}
        self._round = 0
        self._drafts: dict[int, Draft] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._open: dict[int, Level] = {}
        self._untimed: list[int] = []
        self._sweeping = False
        self._sweep: Sweep | None = None
        self._won = False
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
        self._judges.start()
        try:
            yield Started(self._session, self.request)
            self._draft(first_round(self.request))
            while self._is_busy():
                yield from self._handle(self._inbox.get())
                if not self._is_busy() and self._failure is None:
                    yield from self._go_on()
            failure = self._failure
            if failure is not None and not self._drafts:
                raise failure
            state = "failed" if failure is not None else "stopped" if self._asked_to_stop else "done"
            yield Finished(self._result(state, time.monotonic() - began))
        except Exception:
            state = "failed"
            raise
        finally:
            self._drafting.stop()
            self._store(lambda: self._history.finish(self._session, state))
            self._judges.close()

    @property
    def session_id(self) -> int | None:
        """The session's id in the history; None before it has begun."""
        return self._session or None

    @property
    def failure(self) -> Exception | None:
        """Why the session failed although some drafts were done; None when it did not."""
        return self._failure

    def _is_busy(self) -> bool:
        return self._drafting.running or bool(self._open) or self._sweeping

    def _draft(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._batches |= {batch.first + number: batch for number in range(batch.drafts)}
        self._drafting.start(batches)

    def _go_on(self) -> Iterator[MintEvent]:
        """All is quiet: begin what comes next, if anything does."""
        if batches := self._next_round():
            self._round += 1
            yield RoundStarted(self._round, {number: batch.parent(number) for batch in batches for number in batch.numbers})
            self._draft(batches)
        elif self._untimed:
            waiting, self._untimed = self._untimed, []
            for index in waiting:
                self._submit(self._drafts[index], "full")
        elif self._racer is not None and self._sweep is None and not self._asked_to_stop:
            chosen = best(rank(tuple(self._drafts.values()), self._verdicts), self._verdicts)
            if chosen is not None:
                self._sweeping = True
                yield Tuning(chosen)
                threading.Thread(target=self._run_sweep, args=(self._racer, self._drafts[chosen]), name="tuner", daemon=True).start()

    def _next_round(self) -> tuple[Batch, ...]:
        if self._round >= self.request.repair or self._drafting.stopped:
            return ()
        if self.request.until == "first" and any(verdict.passed for verdict in self._verdicts.values()):
            return ()
        latest = [draft for draft in self._drafts.values() if draft.round == self._round and draft.author == "smith"]
        return repairs(self.request, self._round + 1, len(self._batches), latest, self._verdicts)

    def _handle(self, message: _Message) -> Iterator[MintEvent]:
        match message:
            case Token(draft=index, tokens=tokens, text=text):
                yield Progress(index, tokens, text)
            case DraftDone(draft=index):
                batch = self._batches[index]
                yield from self._finished(replace(self._book.add(message), round=batch.round, parent=batch.parent(index)))
            case Loaded(choices=choices) | RunDone(choices=choices) if choices:
                yield Choices(choices)
            case Note(text=text):
                yield Notice(text)
            case Failed(code="request", reason=reason) if self._round > 0:
                # A repair prompt is longer than the first one; that it does not fit costs only the round.
                self._drafting.stop()
                yield Notice(f"no more rounds: {reason}")
            case Failed(code=code, reason=reason, log=log):
                fix = f"llama.cpp's own words are in {log}" if log else ""
                self._failure = _FAILURES.get(code, KmintError)(reason, fix=fix, title="the smith failed")
            case SmithEnded(error=error):
                self._drafting.ended()
                self._failure = self._failure or error
            case _Stop():
                self._asked_to_stop = True
                self._drafting.stop()
                yield Stopping()
            case Begun(index=index):
                yield Judging(index)
            case Said():
                yield from self._judged(message)
            case Broke(index=index, error=error):
                self._close(index)
                self._fail(error)
            case Skipped(index=index):
                self._close(index)
            case _SweepEnded(found=found):
                self._sweeping = False
                yield from self._tuned(found)

    def _finished(self, draft: Draft) -> Iterator[MintEvent]:
        self._drafts[draft.index] = draft
        self._store(lambda: self._history.add_draft(self._session, _row(draft)))
        yield DraftFinished(self._session, draft)
        if draft.finish != "cancelled" and draft.duplicate_of is None:
            self._submit(draft, "correct" if self._times and draft.author == "smith" else self.request.level)

    def _submit(self, draft: Draft, level: Level) -> None:
        self._open[draft.index] = level
        self._judges.submit(draft, level)

    def _judged(self, said: Said) -> Iterator[MintEvent]:
        index, verdict = said.index, said.verdict
        if verdict.timing is not None:
            verdict = replace(verdict, environment={**verdict.environment, "smith": said.smith})
        final = self._won or not (self._times and said.level == "correct" and verdict.passed)
        self._verdicts[index] = verdict
        self._store(lambda: self._history.set_verdict(self._session, index, verdict.to_json(), ratio=ratio(verdict.timing)))
        if not final and self.request.until == "first" and not self._drafting.stopped:
            # Whether this is the win that ends the session can only be told with the GPU to itself.
            self._drafting.pause()
            self._submit(self._drafts[index], "full")
        elif not final:
            self._untimed.append(index)
        if final:
            self._close(index)
        elif self._open.get(index) == "correct":
            del self._open[index]
        yield Judged(self._session, index, verdict, final)
        if self.request.until == "first" and final and self._is_enough(verdict):
            self._won = True
            self._judges.drop_waiting()
            self._drafting.stop()

    def _close(self, index: int) -> None:
        """Nothing more is to be said of a draft for now; the smith goes on when nothing is being timed."""
        self._open.pop(index, None)
        if "full" not in self._open.values():
            self._drafting.resume()

    def _is_enough(self, verdict: Verdict) -> bool:
        """Whether `until first` is reached: by a win, or by a correct kernel where nothing can be timed."""
        return verdict.passed and (verdict.verdict == "win" or verdict.timing is None)

    def _run_sweep(self, racer: Racer, draft: Draft) -> None:
        """In the tuner's thread."""
        try:
            self._inbox.put(_SweepEnded(sweep(draft.index, draft.source, lambda sources: racer.race(sources, self.request.task))))
        except Exception as error:
            self._inbox.put(_SweepEnded(error))

    def _tuned(self, found: Sweep | Exception) -> Iterator[MintEvent]:
        if isinstance(found, Exception):
            self._racer = None
            yield Notice(f"the launch constants were not swept: {found}")
            return
        self._sweep = found
        yield Swept(found)
        if found.source is not None:
            parent = self._drafts[found.draft]
            made = replace(
                parent,
                index=len(self._batches),
                source=found.source,
                tokens=0,
                seconds=found.seconds,
                parent=parent.index,
                author="tuner",
                changes=found.changes,
                notes=(),
            )
            yield from self._finished(self._book.add_tuned(made))

    def _store(self, write: Callable[[], None]) -> None:
        """Write to the history. A full disk ends the session, but what is known is still handed over in `Finished`."""
        try:
            write()
        except KmintError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._judges.drop_waiting()
        self._drafting.stop()

    def _result(self, state: State, seconds: float) -> MintResult:
        drafts = tuple(self._drafts[index] for index in sorted(self._drafts))
        ranking = rank(drafts, self._verdicts)
        chosen = best(ranking, self._verdicts)
        return MintResult(self.request, self._session, state, drafts, dict(self._verdicts), ranking, chosen, seconds, self._sweep)


def _row(draft: Draft) -> NewDraft:
    names = ("source", "seed", "temperature", "tokens", "seconds", "finish", "duplicate_of", "round", "parent", "author", "changes")
    return NewDraft(number=draft.index, **{name: getattr(draft, name) for name in names})
