"""`kmint book build`: drafts, baselines and contests of many operations, overlapped.

Drafts come from one thread, on the processor. Of each batch the baselines are built first, by
several processes. Then several contests run at once: while one compiles or interprets on the
processor, the GPU races or times the kernels of another. This thread alone writes the history and
the book, as results come. So an interrupted build loses the contests under way and nothing else.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kmint_tui.book import store
from kmint_tui.book.records import Book, Entry, digest
from kmint_tui.core.book.contest import Contender, Contest, Outcome
from kmint_tui.core.book.drafting import Drafted, Drafting, drafted_before, new_session
from kmint_tui.core.book.entries import entry_of
from kmint_tui.core.book.planning import Timed, Work, places_of, timed_places
from kmint_tui.core.book.progress import BuildEvent, Built, Done, Profile, Step
from kmint_tui.errors import KmintError
from kmint_tui.history.records import NewDraft
from kmint_tui.history.verdicts import ratio

if TYPE_CHECKING:
    from kmint_tui.core.book.baselines import Builders
    from kmint_tui.core.judges import Opened
    from kmint_tui.history.store import History
    from kmint_tui.minting.drafting import Drafter

FIRST_BATCH, BATCH = 8, 24
"""Operations of one batch. The first one is small, so that its results come early."""
MOST_AT_ONCE, CORES_EACH = 6, 4
_COLUMNS = (
    *("source", "seed", "temperature", "tokens", "seconds", "finish"),
    *("duplicate_of", "author"),
)


@dataclass(frozen=True)
class _Ended:
    work: Work
    places: tuple[Timed, ...]
    found: Outcome | Exception


@dataclass(frozen=True)
class _Ready:
    """The baselines of a batch are built."""


@dataclass(frozen=True)
class _Stop:
    """A request to begin nothing more."""


class Build:
    """One build. `run` belongs to one thread; `stop` may come from any other, or from a signal."""

    def __init__(
        self,
        *,
        opened: Opened,
        smith: Drafter,
        history: History,
        device: str,
        work: Sequence[Work],
        drafts: int,
        rivals: Book,
        tell: Callable[[BuildEvent], object],
        builders: Builders | None = None,
        budget: float | None = None,
        at_once: int | None = None,
    ) -> None:
        """`rivals` is the book so far, whose kernels compete again. `budget` is in seconds."""
        self._opened, self._smith, self._history = opened, smith, history
        self._device, self._work, self._drafts = device, tuple(work), drafts
        self._rivals, self._tell, self._builders = rivals, tell, builders
        self._budget = budget
        self._at_once = at_once or contests_at_once(opened)
        self._inbox: SimpleQueue[Drafted | _Ended | _Ready | _Stop] = SimpleQueue()
        self._stopped = threading.Event()
        self._began = 0.0
        self._spent: list[float] = []
        self._ended = 0
        self._warmed = False
        self._entries: list[Entry] = []
        self._failures: list[str] = []
        self._left: list[str] = []
        self._profile = Profile()
        self._drafted: dict[str, Drafted] = {}
        self._sessions: dict[str, int] = {}
        self._submitted: dict[str, float] = {}

    def stop(self) -> None:
        """Begin no more operations; those under way end."""
        self._stopped.set()
        self._inbox.put(_Stop())

    def run(self) -> Built:
        """Build to the end, to the end of the budget, or to `stop`.

        Raises StorageError where a result cannot be kept.
        """
        self._began = time.monotonic()
        known = {
            work.op.name: found
            for work in self._work
            if (found := drafted_before(self._history, work.op.name, self._drafts))
        }
        drafting = Drafting(self._smith, self._work, self._drafts, known, self._inbox.put)
        drafting.start()
        waiting, size = deque(self._work), FIRST_BATCH
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="contest")
        try:
            while waiting and not self._is_over():
                batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
                self._batch(batch, pool, drafting)
                size = BATCH
        finally:
            # After an interrupt the contests under way end with the referee.
            pool.shutdown(wait=False, cancel_futures=True)
            drafting.stop()
            self._close_sessions()
        self._left += [work.op.name for work in waiting]
        self._profile.wall = time.monotonic() - self._began
        self._profile.worker = self._opened.spent
        return Built(tuple(self._entries), tuple(self._failures), tuple(self._left), self._profile)

    def _batch(self, batch: Sequence[Work], pool: ThreadPoolExecutor, drafting: Drafting) -> None:
        """Build a batch; operations that were not begun are left."""
        ready = self._builders is None
        if self._builders is not None:
            self._tell(Step(f"building the baselines of {len(batch)} operations"))
            threading.Thread(
                target=self._build_baselines, args=(batch,), name="baselines", daemon=True
            ).start()
        waiting, running = deque(batch), set[str]()
        while running or waiting:
            if waiting and self._is_over():
                self._left += [work.op.name for work in waiting]
                waiting.clear()
                continue
            while ready and waiting and len(running) < self._at_once:
                drafted = self._drafted.pop(waiting[0].op.name, None)
                if drafted is None:
                    break
                work = waiting.popleft()
                if drafted.error is not None:
                    drafting.more()
                    self._fail(work, drafted.error)
                    continue
                running.add(work.op.name)
                self._submit(pool, work, drafted)
            if not running and not waiting:
                break
            message = self._next("contests" if running else "drafts" if ready else "baselines")
            if isinstance(message, _Ready):
                ready = True
            elif isinstance(message, Drafted):
                self._keep(message)
            elif isinstance(message, _Ended):
                running.discard(message.work.op.name)
                drafting.more()
                self._take(message)
        if not ready and self._builders is not None:
            self._builders.stop()

    def _next(self, cause: str) -> Drafted | _Ended | _Ready | _Stop:
        """The next message; the time until it comes is counted under `cause`."""
        began = time.monotonic()
        message = self._inbox.get()
        waited = self._profile.waited
        waited[cause] = waited.get(cause, 0.0) + time.monotonic() - began
        return message

    def _is_over(self) -> bool:
        """Whether no more operation may begin: stopped, or one more would end after the budget."""
        if self._stopped.is_set():
            return True
        if self._budget is None:
            return False
        each = statistics.median(self._spent) if self._spent else 0.0
        return time.monotonic() - self._began + each >= self._budget

    def _build_baselines(self, batch: Sequence[Work]) -> None:
        assert self._builders is not None
        try:
            self._builders.build(places_of(batch))
        except Exception as error:
            # The referee builds a baseline that is missing, and says why it cannot.
            self._tell(Step(f"baselines are built one by one: {error}"))
        self._inbox.put(_Ready())

    def _submit(self, pool: ThreadPoolExecutor, work: Work, drafted: Drafted) -> None:
        contenders = list(drafted.contenders().values())
        contenders += self._rivals_of(work, {one.source for one in contenders})
        self._submitted[work.op.name] = time.monotonic()

        def contest() -> tuple[tuple[Timed, ...], Outcome]:
            began = time.monotonic()
            places = timed_places(work)
            loading = time.monotonic() - began
            program = drafted.request.program if drafted.request is not None else None
            outcome = Contest(self._opened, work, places, contenders, program).run()
            outcome.seconds.loading = loading
            return places, outcome

        def ended(future: Future[tuple[tuple[Timed, ...], Outcome]]) -> None:
            error = future.exception()
            if error is None:
                self._inbox.put(_Ended(work, *future.result()))
            else:
                fault = error if isinstance(error, Exception) else KmintError(str(error))
                self._inbox.put(_Ended(work, (), fault))

        self._drafted[work.op.name] = drafted
        pool.submit(contest).add_done_callback(ended)

    def _rivals_of(self, work: Work, known: set[str]) -> list[Contender]:
        """The kernels that a book has for this operation, without those among the drafts."""
        found: dict[str, Contender] = {}
        for entry in self._rivals.entries:
            source = self._rivals.source(entry)
            if entry.op == work.op.name and source not in known:
                found[source] = Contender(
                    source=source,
                    author=entry.author,
                    smith=entry.smith,
                    smith_sha256=entry.smith_sha256,
                    changes=entry.changes,
                )
        return list(found.values())

    def _keep(self, drafted: Drafted) -> None:
        """Store new drafts at once, so that an interrupted build need not make them again."""
        name = drafted.work.op.name
        self._drafted[name] = drafted
        if drafted.error is not None:
            return
        self._warm(drafted)
        if drafted.session is not None:
            self._sessions[name] = drafted.session
            return
        self._profile.drafted += len(drafted.drafts)
        session = self._sessions[name] = self._history.begin(new_session(drafted, self._device))
        for draft in drafted.drafts:
            values = {one: getattr(draft, one) for one in _COLUMNS}
            self._history.add_draft(session, NewDraft(number=draft.index, **values))

    def _warm(self, drafted: Drafted) -> None:
        """While baselines are built, have the referee of each device start its processes, by a
        first kernel.
        """
        if self._warmed or self._builders is None:
            return
        self._warmed = True
        source, name = drafted.drafts[-1].source, drafted.work.op.name

        def compile_one() -> None:
            with suppress(Exception):
                self._opened.judge.judge(source, name, level="compile", strict=True)

        farm = self._opened.farm
        for _ in range(1 if farm is None else farm.devices):
            threading.Thread(target=compile_one, name="warm", daemon=True).start()

    def _take(self, ended: _Ended) -> None:
        """Store the result of a contest in the history and in the book."""
        work, outcome = ended.work, ended.found
        drafted = self._drafted.pop(work.op.name)
        self._spent.append(time.monotonic() - self._submitted.pop(work.op.name))
        if isinstance(outcome, Exception):
            self._fail(work, outcome)
            return
        self._profile.add(outcome)
        self._store_verdicts(work, drafted, outcome)
        entries = []
        for timed, (number, timing) in outcome.best.items():
            contender, verdict = outcome.contenders[number], outcome.verdicts[number]
            entries.append(entry_of(timed.place, contender, verdict, timing))
        sources = {digest(one.source): one.source for one in outcome.contenders}
        if entries:
            store.put(self._device, tuple(entries), sources)
        self._done(work, tuple(entries), outcome.failures)

    def _store_verdicts(self, work: Work, drafted: Drafted, outcome: Outcome) -> None:
        session = self._sessions.pop(work.op.name)
        numbers = dict(enumerate(drafted.contenders()))
        rows = self._history.drafts(session)
        after = 1 + max((row.number for row in rows), default=-1)
        # An earlier contest of these drafts may have made the same kernel.
        held = {row.source: row.number for row in rows if row.changes}

        def number(at: int) -> int | None:
            """The draft of a contender, which joins the session; a rival of a book has none."""
            nonlocal after
            contender = outcome.contenders[at]
            parent = None if contender.parent is None else number(contender.parent)
            of_contest = at >= outcome.given and (contender.parent is None or parent is not None)
            if at not in numbers and of_contest and contender.source in held:
                numbers[at] = held[contender.source]
            elif at not in numbers and of_contest:
                draft = NewDraft.undrafted(
                    after,
                    contender.source,
                    author=contender.author,
                    parent=parent,
                    changes=contender.changes,
                )
                self._history.add_draft(session, draft)
                numbers[at], after = after, after + 1
            return numbers.get(at)

        for at, verdict in outcome.verdicts.items():
            if (kept := number(at)) is not None:
                self._history.set_verdict(
                    session, kept, verdict.to_json(), ratio=ratio(verdict.timing)
                )
        self._history.finish(session, "done")

    def _close_sessions(self) -> None:
        """Mark the sessions of operations without a result as stopped."""
        for session in self._sessions.values():
            self._history.finish(session, "stopped")

    def _fail(self, work: Work, error: Exception) -> None:
        said = error.message if isinstance(error, KmintError) else str(error)
        self._done(work, (), (f"{work.op.name}: {' '.join(said.split())}",))

    def _done(self, work: Work, entries: tuple[Entry, ...], failures: tuple[str, ...]) -> None:
        self._ended += 1
        self._entries += entries
        self._failures += failures
        elapsed, total = time.monotonic() - self._began, len(self._work)
        left = elapsed / self._ended * (total - self._ended)
        if self._budget is not None:
            left = min(left, max(0.0, self._budget - elapsed))
        self._tell(Done(work, entries, failures, self._ended, total, elapsed, left))


def contests_at_once(opened: Opened) -> int:
    """The number of contests under way, so that a GPU always has a kernel to race or to time."""
    devices = opened.farm.devices if opened.farm is not None else 1
    cores = len(os.sched_getaffinity(0))
    return max(1, min(MOST_AT_ONCE * devices, cores // CORES_EACH))
