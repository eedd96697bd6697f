"""The main loop of a session: the smith writes drafts, the referee judges them, the history keeps
them.

The referee judges drafts while the smith writes others. On a GPU it first only checks them. A busy
GPU distorts times, so the referee times drafts when the smith is idle. That is after the last
round, or with the smith paused where the first win ends the session. The environment of a timed
verdict records the smith's activity during the timing.

When nothing runs, the loop begins the next step: another round for rejected drafts, the timing,
then the sweep of the best kernel's launch constants. The smith and the referee run in separate
processes.

`Mint.run` yields the events of `events.py` in the thread that iterates; only that thread uses the
history.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from kmint_tui.events import (
    CasesDone,
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
from kmint_tui.history.records import State
from kmint_tui.history.store import History
from kmint_tui.minting.drafting import (
    Batch,
    Drafter,
    Drafting,
    SmithEnded,
    first_round,
    repairs,
    smith_failure,
)
from kmint_tui.minting.drafts import DraftBook, MintDraft, template_draft
from kmint_tui.minting.judging import (
    CasesCounted,
    DraftDropped,
    Judge,
    JudgeFailed,
    JudgeStarted,
    JudgeThreads,
    Report,
    VerdictReady,
)
from kmint_tui.minting.request import Level, MintRequest
from kmint_tui.minting.result import MintResult, best, rank
from kmint_tui.minting.resuming import Resumed, level_of
from kmint_tui.minting.session_history import SessionHistory
from kmint_tui.minting.tuning import Racer, Sweep, SweepEnded, Tuner
from kmint_tui.smith.events import DraftDone, Event, Failed, ModelLoaded, Note, RunDone, Token
from referee.verdict import Verdict

__all__ = ["Drafter", "Mint"]


@dataclass(frozen=True)
class _Stop:
    """A request to stop drafting."""


_Message = Event | Report | SmithEnded | SweepEnded | _Stop


class Mint:
    """One session. `times` is True where the referee can time kernels; `judges` is the number of
    drafts that it judges at once.

    `racer` holds the races of a request with `tune`; without one, or without timing, there is no
    sweep. `earlier` has the results of a session that goes on.
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
        earlier: Resumed | None = None,
    ) -> None:
        self.request = request
        self._earlier = earlier or Resumed()
        self._history = SessionHistory(history, self._fail)
        self._times = times and request.level == "full"
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._tuner = Tuner(
            racer if request.tune and self._times else None, request, self._inbox.put
        )
        self._drafting = Drafting(smith, request, self._inbox.put)
        self._judges = JudgeThreads(
            judge,
            request,
            self._inbox.put,
            threads=judges,
            silence=self._drafting.silence,
            share_seeds=not times,
        )
        self._book = DraftBook(request.drafted_stage)
        self._template = request.template and request.program is not None
        self._batches: dict[int, Batch] = {}
        self._round = 0
        self._drafts: dict[int, MintDraft] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._open: dict[int, Level] = {}
        self._untimed: list[int] = []
        self._won = False
        self._asked_to_stop = False
        self._failure: Exception | None = None

    def stop(self) -> None:
        """Stop drafting and keep the finished drafts; any thread and a signal handler may call it."""
        self._inbox.put(_Stop())

    def run(self) -> Generator[MintEvent, None, None]:
        """Run the session to its end; the last event is `Finished`.

        Closing the iterator early stops the smith and marks the session as stopped. After a failure
        of the smith or the referee the session finishes with the drafts that were done, and
        `failure` holds the error. Raises that error where no draft was done.
        """
        began = time.monotonic()
        session = self._history.begin(self.request, self._earlier.session)
        state: State = "stopped"
        self._judges.start()
        for known in self._earlier.drafts.values():
            self._book.remember(known)
        try:
            yield Started(session, self.request)
            yield from self._draft(first_round(self.request))
            while self._is_busy() or (self._failure is None and (yield from self._go_on())):
                if self._is_busy():
                    yield from self._handle(self._inbox.get())
            failure = self._failure
            if failure is not None and not self._drafts:
                raise failure
            state = (
                "failed" if failure is not None else "stopped" if self._asked_to_stop else "done"
            )
            yield Finished(self._result(state, time.monotonic() - began))
        except Exception:
            state = "failed"
            raise
        finally:
            self._drafting.stop()
            self._history.finish(state)
            self._judges.close()

    @property
    def session_id(self) -> int | None:
        """The session's id in the history; None before it has begun."""
        return self._history.id or None

    @property
    def failure(self) -> Exception | None:
        """The error of a session that failed although some drafts were done; else None."""
        return self._failure

    def _is_busy(self) -> bool:
        return self._drafting.running or bool(self._open) or self._tuner.running

    def _draft(self, batches: Sequence[Batch]) -> Iterator[MintEvent]:
        """Take the drafts of the history, and begin to make the others."""
        for batch in batches:
            self._batches |= dict.fromkeys(batch.numbers, batch)
            for number in batch.numbers:
                if number in self._earlier.drafts:
                    yield from self._recalled(self._earlier.drafts[number])
        missing = [left for batch in batches if (left := self._earlier.left(batch)).left != ()]
        if missing and not self._drafting.stopped:
            self._drafting.start(missing)

    def _go_on(self) -> Generator[MintEvent, None, bool]:
        """Begin the next step once nothing runs; False where none is left."""
        if self._template and not self._asked_to_stop:
            self._template = False
            yield from self._own_drafts([template_draft(self.request, len(self._batches))])
        elif batches := self._next_round():
            self._round += 1
            yield RoundStarted(
                self._round,
                {number: batch.parent(number) for batch in batches for number in batch.numbers},
            )
            yield from self._draft(batches)
        elif self._untimed:
            waiting, self._untimed = self._untimed, []
            for index in waiting:
                self._submit(self._drafts[index], "full")
        elif swept := [one for one in self._earlier.drafts if one not in self._drafts]:
            # The tuner's kernels are stored together, so its sweep was whole.
            self._tuner.leave_out()
            yield from self._own_drafts([self._earlier.drafts[index] for index in swept])
        elif self._tuner.waiting and not self._asked_to_stop:
            ranking = rank(tuple(self._drafts.values()), self._verdicts)
            passed = [
                self._drafts[index]
                for index in ranking
                if index in self._verdicts and self._verdicts[index].passed
            ]
            if not passed:
                return False
            self._tuner.start(passed)
            yield Tuning(passed[0].index)
        else:
            return False
        return True

    def _own_drafts(self, drafts: Sequence[MintDraft]) -> Iterator[MintEvent]:
        """Take kernels that no smith drafted: the template's, or all of a sweep."""
        known, request = self._earlier.drafts, self.request
        for one in drafts:
            self._batches[one.index] = Batch(
                request.prompt, request.seed, one.round, one.index, (one.parent,)
            )
        taken = [known.get(one.index) or self._book.add_own(one) for one in drafts]
        # Stored at once: a session that goes on after a kill has all kernels of a sweep or none.
        if new := [one for one in taken if one.index not in known]:
            self._history.add(*new)
        for draft in taken:
            yield from self._recalled(draft)

    def _next_round(self) -> tuple[Batch, ...]:
        if self._round >= self.request.repair or self._drafting.stopped:
            return ()
        if self.request.until == "first" and any(
            verdict.passed for verdict in self._verdicts.values()
        ):
            return ()
        latest = [
            draft
            for draft in self._drafts.values()
            if draft.round == self._round and draft.author == "smith"
        ]
        return repairs(self.request, self._round + 1, len(self._batches), latest, self._verdicts)

    def _handle(self, message: _Message) -> Iterator[MintEvent]:
        match message:
            case Token(draft=index, tokens=tokens, text=text):
                yield Progress(index, tokens, text)
            case DraftDone(draft=index):
                batch = self._batches[index]
                yield from self._finished(
                    replace(self._book.add(message), round=batch.round, parent=batch.parent(index))
                )
            case ModelLoaded(choices=choices) | RunDone(choices=choices) if choices:
                yield Choices(choices)
            case Note(text=text):
                yield Notice(text)
            case Failed(code="request", reason=reason) if self._round > 0:
                # A repair prompt is longer than the first one. Where it does not fit, only the
                # round is lost.
                self._drafting.stop()
                yield Notice(f"no more rounds: {reason}")
            case Failed():
                self._failure = smith_failure(message)
            case SmithEnded(error=error):
                self._drafting.ended()
                self._failure = self._failure or error
            case _Stop():
                self._asked_to_stop = True
                self._drafting.stop()
                yield Stopping()
            case JudgeStarted(index=index):
                yield Judging(index)
            case CasesCounted(index=index, done=done, total=total):
                yield CasesDone(index, done, total)
            case VerdictReady():
                yield from self._judged(message)
            case JudgeFailed(index=index, error=error):
                self._close(index)
                self._fail(error)
            case DraftDropped(index=index):
                self._close(index)
            case SweepEnded(found=found):
                self._tuner.ended(found)
                yield from self._tuned(found)

    def _finished(self, draft: MintDraft) -> Iterator[MintEvent]:
        self._history.add(draft)
        yield from self._recalled(draft)

    def _recalled(self, draft: MintDraft) -> Iterator[MintEvent]:
        """Take a draft that is in the history; it is judged unless it has a verdict there."""
        self._drafts[draft.index] = draft
        yield DraftFinished(self._history.id, draft)
        if draft.finish == "cancelled" or draft.duplicate_of is not None:
            return
        if (verdict := self._earlier.verdicts.get(draft.index)) is not None:
            yield from self._counted(draft.index, verdict, level_of(verdict))
        else:
            # A race has timed the kernels of the tuner already.
            timed_later = self._times and not draft.changes
            self._submit(draft, "correct" if timed_later else self.request.level)

    def _submit(self, draft: MintDraft, level: Level) -> None:
        self._open[draft.index] = level
        self._judges.submit(draft, level)

    def _judged(self, said: VerdictReady) -> Iterator[MintEvent]:
        index, verdict = said.index, said.verdict
        if verdict.timing is not None:
            verdict = replace(verdict, environment={**verdict.environment, "smith": said.smith})
        self._history.set_verdict(index, verdict)
        yield from self._counted(index, verdict, said.level)

    def _counted(self, index: int, verdict: Verdict, level: Level) -> Iterator[MintEvent]:
        """Take a verdict that is in the history, and begin the timing that follows from it."""
        final = self._won or not (self._times and level == "correct" and verdict.passed)
        self._verdicts[index] = verdict
        if not final and self.request.until == "first" and not self._drafting.stopped:
            # The win that ends the session needs a time, and a time needs an idle GPU.
            self._drafting.pause()
            self._submit(self._drafts[index], "full")
        elif not final:
            self._untimed.append(index)
        if final:
            self._close(index)
        elif self._open.get(index) == "correct":
            del self._open[index]
        yield Judged(self._history.id, index, verdict, final)
        if self.request.until == "first" and final and self._is_enough(verdict):
            self._won = True
            self._judges.drop_waiting()
            self._drafting.stop()

    def _close(self, index: int) -> None:
        """Mark a draft as done for now; the smith goes on once the referee times nothing."""
        self._open.pop(index, None)
        if "full" not in self._open.values():
            self._drafting.resume()

    def _is_enough(self, verdict: Verdict) -> bool:
        """True for a win, or for a correct kernel on a machine that times nothing."""
        return verdict.passed and (verdict.verdict == "win" or verdict.timing is None)

    def _tuned(self, found: tuple[Sweep, ...] | Exception) -> Iterator[MintEvent]:
        if isinstance(found, Exception):
            yield Notice(f"the launch constants were not swept: {found}")
            return
        made: dict[str, MintDraft] = {}
        for sweep in found:
            yield Swept(sweep)
            if sweep.source is None or sweep.source in made:
                continue
            parent = self._drafts[sweep.draft]
            author, changes = sweep.maker(parent.author, parent.changes)
            made[sweep.source] = replace(
                parent,
                index=len(self._batches) + len(made),
                source=sweep.source,
                tokens=0,
                seconds=sweep.seconds,
                parent=None if sweep.structure else parent.index,
                author=author,
                changes=changes,
                notes=(),
            )
        yield from self._own_drafts(list(made.values()))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._judges.drop_waiting()
        self._drafting.stop()

    def _result(self, state: State, seconds: float) -> MintResult:
        drafts = tuple(self._drafts[index] for index in sorted(self._drafts))
        ranking = rank(drafts, self._verdicts)
        chosen = best(ranking, self._verdicts)
        return MintResult(
            request=self.request,
            session=self._history.id,
            state=state,
            drafts=drafts,
            verdicts=dict(self._verdicts),
            ranking=ranking,
            best=chosen,
            seconds=seconds,
            sweeps=self._tuner.sweeps,
        )
