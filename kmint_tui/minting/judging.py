"""The referee's threads: they take drafts from a queue and report verdicts.

The threads only wait for the referee's own processes. They are daemons, so kmint does not wait for
them when it stops.

Without a GPU the drafts of a round share one secret seed, so the test data are drawn once, before
the first draft is there. No draft of the round may depend on the values of that seed. The smith
sees values only in the reasons of rejections. Those go into the prompts of the next round, which
has another seed. A kernel sees the values in a separate process, which ends with its job. That
process reaches neither the smith nor the process of another kernel. On a GPU several kernels use
the same memory one after the other, so every verdict has its own seed.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import Level, MintRequest
from referee.concurrency import Memo
from referee.verdict import Verdict

if TYPE_CHECKING:
    from referee.problem import TaskName


class Judge(Protocol):
    """The part of the referee (`referee.judge.Referee`) that a session needs.

    Several threads call it at once.
    """

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        strict: bool = False,
        count: Callable[[int, int], None] = ...,
    ) -> Verdict: ...


@runtime_checkable
class Preparing(Protocol):
    """A referee that can draw test data, or start the GPU's process, before the first draft."""

    def prepare(self, op: str | TaskName, seed: int) -> None: ...


SEED_BITS = 63
COUNT_SECONDS = 0.1
"""Seconds between two reports of a draft's progress."""


@dataclass(frozen=True)
class JudgeStarted:
    """A thread has begun to judge a draft."""

    index: int


@dataclass(frozen=True)
class CasesCounted:
    """The referee has done `done` of `total` test cases of a draft."""

    index: int
    done: int
    total: int


@dataclass(frozen=True)
class VerdictReady:
    """The verdict on a draft at a level; `smith` is the smith's activity at its start and end."""

    index: int
    level: Level
    verdict: Verdict
    smith: str


@dataclass(frozen=True)
class JudgeFailed:
    """The referee itself failed on a draft."""

    index: int
    error: Exception


@dataclass(frozen=True)
class DraftDropped:
    """A draft that was dropped before a thread began on it."""

    index: int


Report = JudgeStarted | CasesCounted | VerdictReady | JudgeFailed | DraftDropped


class JudgeThreads:
    """The threads.

    Each draft gets `JudgeStarted` and then `VerdictReady` or `JudgeFailed`. A dropped draft gets
    `DraftDropped`.
    """

    def __init__(
        self,
        judge: Judge,
        request: MintRequest,
        report: Callable[[Report], None],
        *,
        threads: int,
        silence: Callable[[], str],
        share_seeds: bool,
    ) -> None:
        """`silence` gives the smith's activity now; with `share_seeds` a round has one seed."""
        self._judge = judge
        self._request = request
        self._report = report
        self._silence = silence
        self._share_seeds = share_seeds
        self._seeds = Memo()
        self._waiting: SimpleQueue[tuple[MintDraft, Level] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"judge-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        if isinstance(self._judge, Preparing):
            threading.Thread(
                target=self._prepare, args=(self._judge,), name="prepare", daemon=True
            ).start()
        for thread in self._threads:
            thread.start()

    def submit(self, draft: MintDraft, level: Level) -> None:
        """Queue a draft."""
        self._waiting.put((draft, level))

    def drop_waiting(self) -> None:
        """Drop the drafts that no thread has begun on."""
        try:
            while (work := self._waiting.get_nowait()) is not None:
                self._report(DraftDropped(work[0].index))
        except Empty:
            return

    def close(self) -> None:
        """Let the threads end after their current drafts."""
        self.drop_waiting()
        for _ in self._threads:
            self._waiting.put(None)

    def _counter(self, index: int) -> Callable[[int, int], None]:
        """A function that reports the number of done cases at most every `COUNT_SECONDS`."""
        told = 0.0

        def count(done: int, total: int) -> None:
            nonlocal told
            now = time.monotonic()
            if now - told >= COUNT_SECONDS or done == total:
                told = now
                self._report(CasesCounted(index, done, total))

        return count

    def _prepare(self, judge: Preparing) -> None:
        # The judging of a draft reports the same failure.
        with contextlib.suppress(Exception):
            judge.prepare(self._request.task, self._seed(0))

    def _seed(self, number: int) -> int:
        """The secret seed of a round."""
        return self._seeds.get(number, lambda: secrets.randbits(SEED_BITS))

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            draft, level = work
            self._report(JudgeStarted(draft.index))
            before = self._silence()
            try:
                seed = self._seed(draft.round) if self._share_seeds else None
                verdict = self._judge.judge(
                    draft.source,
                    self._request.task,
                    level=level,
                    target=self._request.target,
                    seed=seed,
                    strict=True,
                    count=self._counter(draft.index),
                )
            except Exception as error:
                self._report(JudgeFailed(draft.index, error))
            else:
                after = self._silence()
                self._report(
                    VerdictReady(
                        draft.index,
                        level,
                        verdict,
                        before if after == before else f"{before}; at the end {after}",
                    )
                )
