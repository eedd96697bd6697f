"""The referee at work beside the smith: a few threads that take drafts from a queue and report verdicts.

The threads only wait for the referee's own processes. They are daemons, so a kmint that is told to stop does not wait for
them, and nothing they would still have said is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.request import Level, MintRequest
from referee.verdict import Verdict

if TYPE_CHECKING:
    from referee.device.jobs import TaskName


class Judge(Protocol):
    """What is needed of the referee (`referee.judge.Referee`): verdicts, from several threads at once."""

    def judge(
        self, source: str, op: str | TaskName, *, level: Level = "full", target: str | None = None, seed: int | None = None
    ) -> Verdict: ...


@dataclass(frozen=True)
class Begun:
    """A thread has begun on a draft."""

    index: int


@dataclass(frozen=True)
class Said:
    """The verdict on a draft at a level; `smith` is what the smith was doing when the referee began, and when it ended."""

    index: int
    level: Level
    verdict: Verdict
    smith: str


@dataclass(frozen=True)
class Broke:
    """The referee itself failed on a draft."""

    index: int
    error: Exception


@dataclass(frozen=True)
class Skipped:
    """A draft that was dropped before the referee began on it."""

    index: int


Report = Begun | Said | Broke | Skipped


class JudgeThreads:
    """`submit` drafts; every one is answered by `Begun` and then `Said` or `Broke`, or by `Skipped` once dropped."""

    def __init__(
        self, judge: Judge, request: MintRequest, report: Callable[[Report], None], *, threads: int, silence: Callable[[], str]
    ) -> None:
        """`silence` tells what the smith is doing at this moment."""
        self._judge = judge
        self._request = request
        self._report = report
        self._silence = silence
        self._waiting: SimpleQueue[tuple[Draft, Level] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, name=f"judge-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def submit(self, draft: Draft, level: Level) -> None:
        """Have a draft judged when a thread is free."""
        self._waiting.put((draft, level))

    def drop_waiting(self) -> None:
        """Forget the drafts that no thread has begun on."""
        try:
            while (work := self._waiting.get_nowait()) is not None:
                self._report(Skipped(work[0].index))
        except Empty:
            return

    def close(self) -> None:
        """Let the threads end after what they are at."""
        self.drop_waiting()
        for _ in self._threads:
            self._waiting.put(None)

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            draft, level = work
            self._report(Begun(draft.index))
            before = self._silence()
            try:
                verdict = self._judge.judge(draft.source, self._request.task, level=level, target=self._request.target)
            except Exception as error:
                self._report(Broke(draft.index, error))
            else:
                after = self._silence()
                self._report(Said(draft.index, level, verdict, before if after == before else f"{before}; at the end {after}"))
