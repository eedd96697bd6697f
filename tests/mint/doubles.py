"""A smith and a referee that play a script, for the orders of events that the real ones cannot be
made to take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone, Token
from referee.report import uncounted
from referee.verdict import Outcome, Stage, Verdict

if TYPE_CHECKING:
    from kmint_tui.minting.request import Level
    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.sampling import Sampling
    from referee.problem import TaskName


def answer(index: int, source: str, finish: Any = "stop") -> DraftDone:
    return DraftDone(
        draft=index,
        text=source,
        finish=finish,
        tokens=10 + index,
        seconds=1.0,
        seed=100 + index,
        temperature=0.7,
    )


def kernel(name: str) -> str:
    """Source that differs from every other name's by more than names."""
    return f"def run(x):\n    return {name!r}\n"


def run_done(cancelled: bool = False) -> RunDone:
    return RunDone(
        drafts=0,
        tokens=0,
        seconds=1.0,
        prompt_tokens=0,
        reused_tokens=0,
        prefill_seconds=0.0,
        first_token_seconds=0.0,
        steps=0,
        step_seconds=0.0,
        sampling_share=0.0,
        cells=0,
        threads=1,
        cancelled=cancelled,
    )


def verdict(
    outcome: Outcome,
    stage: Stage = "done",
    *,
    ratio: float | None = None,
    compiled: Mapping[str, float] | None = None,
) -> Verdict:
    timing = {"ratio": {"ratio": ratio}} if ratio is not None else None
    environment = {} if compiled is None else {"compiled": dict(compiled)}
    return Verdict(
        "softmax",
        outcome,
        stage,
        f"it is {outcome}",
        None,
        "interpret",
        timing=timing,
        environment=environment,
    )


class ScriptedSmith:
    """Gives its events; after `wait_after` of them waits for `cancel`, and then ends as a cancelled
    run does.
    """

    def __init__(
        self,
        events: list[Event],
        *,
        wait_after: int | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._events = events
        self._wait_after = wait_after
        self.cancelled = cancelled or threading.Event()

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = 768,
        only: Sequence[int] = (),
    ) -> Iterator[Event]:
        finished: set[int] = set()
        for number, event in enumerate(self._events):
            if number == self._wait_after:
                self.cancelled.wait()
                yield from (
                    answer(index, "", "cancelled")
                    for index in range(drafts)
                    if index not in finished
                )
                break
            if isinstance(event, DraftDone):
                finished.add(event.draft)
            yield event
            if isinstance(event, Failed):
                return
        yield run_done(self.cancelled.is_set())

    def cancel(self) -> None:
        self.cancelled.set()


class RoundsSmith:
    """Gives one list of events a run, and remembers what it was asked. In run `wait_in` it waits
    for `cancel` at the end.
    """

    def __init__(self, *runs: list[Event], wait_in: int | None = None) -> None:
        self._runs = runs
        self._wait_in = wait_in
        self.prompts: list[Prompt | Sequence[Prompt]] = []
        self.asked: list[int] = []
        self.seeds: list[int] = []
        self.only: list[tuple[int, ...]] = []
        self.cancelled = threading.Event()

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = 768,
        only: Sequence[int] = (),
    ) -> Iterator[Event]:
        events = self._runs[len(self.prompts)]
        waits = self._wait_in == len(self.prompts)
        self.prompts.append(prompt)
        self.asked.append(drafts)
        self.seeds.append(seed)
        self.only.append(tuple(only))
        events = [
            one for one in events if not only or not isinstance(one, DraftDone) or one.draft in only
        ]
        script = [*events, tokens(0)] if waits else events
        one = ScriptedSmith(
            script, wait_after=len(events) if waits else None, cancelled=self.cancelled
        )
        yield from one.draft(prompt, drafts)

    def cancel(self) -> None:
        self.cancelled.set()


class ScriptedReferee:
    """Answers by a word of the source. `holds` makes it wait for `release` before it answers the
    first time.
    """

    def __init__(self, verdicts: Mapping[str, Verdict | Exception], *, holds: bool = False) -> None:
        self._verdicts = verdicts
        self._gate = threading.Event()
        if not holds:
            self._gate.set()
        self.asked: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self.seeds: list[int | None] = []

    def release(self) -> None:
        self._gate.set()

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        strict: bool = False,
        count: Callable[[int, int], None] = uncounted,
    ) -> Verdict:
        word = source.split("'")[1]
        self.asked.put((word, level))
        self.seeds.append(seed)
        self._gate.wait()
        found = self._verdicts.get(f"{word}@{level}", self._verdicts.get(word))
        assert found is not None, word
        if isinstance(found, Exception):
            raise found
        count(1, 2)
        count(2, 2)
        return found

    @property
    def questions(self) -> list[tuple[str, str]]:
        """Everything asked so far, in order."""
        found = []
        while not self.asked.empty():
            found.append(self.asked.get())
        return found


def tokens(index: int) -> Token:
    return Token(index, "x", 1)
