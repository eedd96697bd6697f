"""Before the first draft a session has its referee prepare: test data, or the GPU's process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.models.store import Choice
from referee.judge import Referee
from referee.problem import TaskName
from tests.core.timing_stand_in import TimingStandIn
from tests.mint.doubles import ScriptedReferee, ScriptedSmith, answer, kernel, verdict
from tests.mint.test_mint import history, last, model, request
from tests.save.test_host_code import GOOD

__all__ = ["history", "model"]


@pytest.mark.parametrize("times", [True, False])
def test_the_referee_prepares_while_the_smith_drafts(
    model: Choice, history: History, times: bool
) -> None:
    begun = threading.Event()

    class Preparing(ScriptedReferee):
        def prepare(self, op: str | TaskName, seed: int) -> None:
            begun.set()

        def judge(self, source: str, op: str | TaskName, **options: Any) -> Any:
            assert begun.wait(60), "nothing was prepared"
            return super().judge(source, op, **options)

    found = verdict("win", ratio=1.2) if times else verdict("correct")
    smith = ScriptedSmith([answer(0, kernel("good"))])
    referee = Preparing({"good": found})
    mint = Mint(request(model, 1), smith=smith, judge=referee, history=history, times=times)
    assert last(list(mint.run())).best == 0


def test_the_process_of_the_gpu_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    environment = TimingStandIn.environment

    def noted(self: TimingStandIn) -> dict[str, Any]:
        asked.append("hello")
        return environment(self)

    monkeypatch.setattr("referee.judge.Replayer", TimingStandIn)
    monkeypatch.setattr(TimingStandIn, "environment", noted)
    with Referee(mode="replay", demand="any") as referee:
        referee.prepare("softmax", 1)
        assert asked == ["hello"]
        found = referee.judge(GOOD, "softmax", level="compile")
        assert (found.verdict, asked) == ("unsure", ["hello"])
        referee.prepare("softmax", 2)
        assert asked == ["hello"] and referee.spent == {}
