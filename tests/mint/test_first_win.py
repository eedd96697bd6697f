"""`--until first`, and the GPU that smith and referee share: who is silent when, and what the
verdict says of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from kmint_tui.events import Judged, MintEvent
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.models.check import check
from kmint_tui.models.store import Choice
from kmint_tui.smith import Options, Smith
from kmint_tui.smith.events import DraftDone, Event, RunDone
from referee.report import uncounted
from referee.verdict import Verdict
from tests import tiny_models
from tests.mint.doubles import (
    ScriptedReferee,
    ScriptedSmith,
    answer,
    kernel,
    run_done,
    tokens,
    verdict,
)
from tests.mint.test_mint import history, last, model, request

if TYPE_CHECKING:
    from kmint_tui.minting.request import Level
    from referee.problem import TaskName

__all__ = ["history", "model"]

HALTED = "idle: halted in the middle of its drafts"


class HaltingSmith:
    """Gives one draft after the other; while halted it gives none. After its events it waits for
    `cancel`.
    """

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._going = threading.Event()
        self._going.set()
        self._cancelled = threading.Event()
        self._running = False
        self.halts = 0

    @property
    def activity(self) -> Literal["idle", "paused", "drafting"]:
        return "idle" if not self._running else "drafting" if self._going.is_set() else "paused"

    def pause(self) -> None:
        self.halts += self._going.is_set()
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def cancel(self) -> None:
        self._cancelled.set()
        self._going.set()

    def draft(self, prompt: object, drafts: int, **settings: object) -> Iterator[Event]:
        self._running = True
        given: set[int] = set()
        for event in self._events:
            self._going.wait()
            if self._cancelled.is_set():
                break
            yield event
            if isinstance(event, DraftDone):
                given.add(event.draft)
        if len(given) < drafts:
            self._cancelled.wait()
        yield from (answer(index, "", "cancelled") for index in range(drafts) if index not in given)
        self._running = False
        yield run_done(self._cancelled.is_set())


class Watching(ScriptedReferee):
    """Notes what the smith is doing whenever something is asked."""

    def __init__(self, smith: HaltingSmith | Smith, verdicts: dict[str, Verdict]) -> None:
        super().__init__(verdicts)
        self._smith = smith
        self.seen: list[tuple[str, Level, str]] = []

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
        found = super().judge(source, op, level=level, target=target, seed=seed)
        self.seen.append((source.split("'")[1], level, self._smith.activity))
        return found


def timed(
    smith: HaltingSmith, model: Choice, history: History, referee: ScriptedReferee, drafts: int = 4
) -> list[MintEvent]:
    wanted = request(model, drafts, "first")
    return list(
        Mint(wanted, smith=smith, judge=referee, history=history, times=True, judges=1).run()
    )


def test_the_first_win_ends_the_session_and_a_loss_does_not(
    model: Choice, history: History
) -> None:
    smith = HaltingSmith(
        [answer(0, kernel("slow")), answer(1, kernel("bad")), answer(2, kernel("fast")), tokens(3)]
    )
    verdicts = {
        "slow@correct": verdict("correct"),
        "slow@full": verdict("loss", ratio=0.9),
        "bad": verdict("rejected", "trace"),
        "fast@correct": verdict("correct"),
        "fast@full": verdict("win", ratio=1.3),
    }
    referee = Watching(smith, verdicts)
    events = timed(smith, model, history, referee)
    result = last(events)
    assert (result.best, result.state) == (2, "done")
    assert [draft.finish for draft in result.drafts] == ["stop", "stop", "stop", "cancelled"]
    assert {found for name, level, found in referee.seen if level == "full"} == {"paused"}
    assert [name for name, level, _ in referee.seen if level == "full"] == ["slow", "fast"]
    assert smith.halts in (1, 2)
    assert [result.verdicts[index].environment.get("smith") for index in (0, 1, 2)] == [
        HALTED,
        None,
        HALTED,
    ]
    stored = history.drafts(result.session)
    assert stored[2].verdict is not None and stored[2].verdict["environment"]["smith"] == HALTED
    assert [row.finish for row in stored] == ["stop", "stop", "stop", "cancelled"]


def test_without_a_win_every_draft_is_written_and_timed(model: Choice, history: History) -> None:
    smith = HaltingSmith([answer(0, kernel("slow")), answer(1, kernel("other"))])
    verdicts = {
        f"{name}@{level}": found
        for name in ("slow", "other")
        for level, found in (("correct", verdict("correct")),)
    }
    verdicts |= {
        "slow@full": verdict("tie", ratio=1.0),
        "other@full": verdict("unsure", ratio=1.02),
    }
    result = last(timed(smith, model, history, Watching(smith, verdicts), 2))
    assert [result.verdicts[index].verdict for index in (0, 1)] == ["tie", "unsure"]
    assert [draft.finish for draft in result.drafts] == ["stop", "stop"]
    assert smith.activity == "idle"


def test_an_untimed_task_ends_with_the_first_correct_kernel(
    model: Choice, history: History
) -> None:
    smith = HaltingSmith([answer(0, kernel("good")), tokens(1)])
    result = last(timed(smith, model, history, Watching(smith, {"good": verdict("correct")}), 2))
    assert (result.best, [draft.finish for draft in result.drafts]) == (0, ["stop", "cancelled"])


def test_a_kernel_that_falls_in_timing_lets_the_smith_go_on(
    model: Choice, history: History
) -> None:
    smith = HaltingSmith([answer(0, kernel("odd")), answer(1, kernel("good"))])
    verdicts = {
        "odd@correct": verdict("correct"),
        "odd@full": verdict("rejected", "timing"),
        "good@correct": verdict("correct"),
    }
    result = last(
        timed(
            smith,
            model,
            history,
            Watching(smith, verdicts | {"good@full": verdict("win", ratio=2.0)}),
            2,
        )
    )
    assert (result.best, result.verdicts[0].verdict) == (1, "rejected")


def test_timing_of_all_kernels_begins_after_the_last_draft(model: Choice, history: History) -> None:
    smith = HaltingSmith([answer(0, kernel("good")), answer(1, kernel("better"))])
    verdicts = {"good@correct": verdict("correct"), "better@correct": verdict("correct")}
    verdicts |= {"good@full": verdict("win", ratio=1.2), "better@full": verdict("win", ratio=1.4)}
    referee = Watching(smith, verdicts)
    events = list(
        Mint(request(model, 2), smith=smith, judge=referee, history=history, times=True).run()
    )
    result = last(events)
    assert {found for _, level, found in referee.seen if level == "full"} == {"idle"}
    assert smith.halts == 0
    assert [result.verdicts[index].environment["smith"] for index in (0, 1)] == [
        "idle: no draft is being written"
    ] * 2


def test_of_a_smith_elsewhere_nothing_is_claimed(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    referee = ScriptedReferee(
        {"good@correct": verdict("correct"), "good@full": verdict("win", ratio=1.2)}
    )
    result = last(
        list(
            Mint(
                request(model, 2, "first"), smith=smith, judge=referee, history=history, times=True
            ).run()
        )
    )
    assert result.verdicts[0].environment["smith"].startswith("not here")


def test_an_untimed_verdict_says_nothing_of_the_smith(model: Choice, history: History) -> None:
    smith = HaltingSmith([answer(0, kernel("good"))])
    referee = Watching(smith, {"good": replace(verdict("correct"), environment={"device": "cpu"})})
    result = last(list(Mint(request(model, 1), smith=smith, judge=referee, history=history).run()))
    assert result.verdicts[0].environment == {"device": "cpu"}


def test_the_real_engine_stands_still_while_a_kernel_is_timed(
    history: History, tmp_path: Path
) -> None:
    source = kernel("good")
    path = tiny_models.scripted(tmp_path / "model.gguf", [f"```python\n{source}```".encode()])
    wanted = replace(
        request(Choice("tiny", check(path), None, "named by path"), 60, "first"), max_tokens=900
    )
    with Smith(path, Options(log=tmp_path / "smith.log", threads=1)) as smith:
        referee = Watching(
            smith, {"good@correct": verdict("correct"), "good@full": verdict("win", ratio=1.2)}
        )
        result = last(
            list(Mint(wanted, smith=smith, judge=referee, history=history, times=True).run())
        )
        assert [found for _, level, found in referee.seen if level == "full"] in (
            ["paused"],
            ["idle"],
        )
        assert result.verdicts[0].environment["smith"].startswith("idle: ")
        assert smith.activity == "idle"
        # Halted or not, the engine is at hand for the next session.
        assert isinstance([*smith.draft(wanted.prompt, 1, max_tokens=4)][-1], RunDone)


@pytest.mark.parametrize("finish", ["stop", "cancelled"])
def test_leaving_while_a_kernel_is_timed_leaves_no_halted_smith(
    model: Choice, history: History, finish: str
) -> None:
    smith = HaltingSmith([answer(0, kernel("good")), tokens(1)])
    referee = ScriptedReferee(
        {"good@correct": verdict("correct"), "good@full": verdict("loss", ratio=0.9)}
    )
    session = Mint(
        request(model, 2, "first"), smith=smith, judge=referee, history=history, times=True
    )
    run = session.run()
    for event in run:
        if isinstance(event, Judged) and not event.final:
            assert smith.activity == "paused"
            if finish == "cancelled":
                run.close()
                break
            session.stop()
    assert smith.activity != "paused"
