"""The mint loop: what is judged when, what is kept, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui.documents import finite
from kmint_tui.errors import ModelError, StorageError
from kmint_tui.events import (
    CasesDone,
    DraftFinished,
    Finished,
    Judged,
    Judging,
    MintEvent,
    Started,
    Stopping,
    to_json,
)
from kmint_tui.history.records import NewDraft
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.minting.request import MintRequest, Until
from kmint_tui.minting.result import MintResult
from kmint_tui.models.check import check
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Event, Failed
from kmint_tui.smith.prompts import build
from kmint_tui.smith.sampling import Sampling
from referee.ops import get
from tests import tiny_models
from tests.mint.doubles import ScriptedReferee, ScriptedSmith, answer, kernel, tokens, verdict


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Choice:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return Choice("tiny", check(tiny_models.llama(path)), None, "named by path")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as opened:
        yield opened


def request(
    model: Choice, drafts: int, until: Until = "best", *, repair: int = 0, tune: bool = False
) -> MintRequest:
    op = get("softmax")
    return MintRequest(
        op,
        "softmax",
        model,
        "ab" * 32,
        build(op, "card"),
        drafts,
        7,
        Sampling(),
        64,
        until,
        repair=repair,
        tune=tune,
    )


def last(events: list[MintEvent]) -> MintResult:
    assert isinstance(events[-1], Finished)
    return events[-1].result


def test_a_judged_draft_tells_how_far_it_is(model: Choice, history: History) -> None:
    """The count comes between the referee's beginning and its word, here and in the stream."""
    referee = ScriptedReferee({"good": verdict("correct")})
    events = list(
        Mint(
            request(model, 1),
            smith=ScriptedSmith([answer(0, kernel("good"))]),
            judge=referee,
            history=history,
        ).run()
    )
    told = [event for event in events if isinstance(event, Judging | CasesDone | Judged)]
    assert told[:-1] == [Judging(0), CasesDone(0, 1, 2), CasesDone(0, 2, 2)]
    assert {"event": "cases", "index": 0, "done": 2, "total": 2}.items() <= to_json(told[2]).items()


def test_drafts_share_a_seed_unless_a_gpu_runs_them(model: Choice, history: History) -> None:
    """Two sessions have two seeds; with a GPU the referee draws one for every verdict."""
    seeds = []
    for times in (False, False, True):
        referee = ScriptedReferee({"good": verdict("correct"), "bad": verdict("rejected", "trace")})
        smith = ScriptedSmith([answer(0, kernel("good")), answer(1, kernel("bad"))])
        list(
            Mint(request(model, 2), smith=smith, judge=referee, history=history, times=times).run()
        )
        seeds.append(set(referee.seeds))
    assert seeds[2] == {None}
    assert [len(some) for some in seeds] == [1, 1, 1] and len(set.union(*seeds)) == 3


def test_every_draft_is_judged_once_and_stored(model: Choice, history: History) -> None:
    answers: list[Event] = [
        tokens(0),
        answer(0, kernel("bad")),
        answer(1, kernel("good")),
        answer(2, kernel("good").replace("x", "y")),
    ]
    referee = ScriptedReferee({"bad": verdict("rejected", "trace"), "good": verdict("correct")})
    events = list(
        Mint(request(model, 3), smith=ScriptedSmith(answers), judge=referee, history=history).run()
    )
    result = last(events)
    assert isinstance(events[0], Started)
    assert (result.best, result.ranking, result.passed, result.state) == (1, (1, 0, 2), 2, "done")
    assert result.drafts[2].duplicate_of == 1
    assert sorted(referee.questions) == [("bad", "full"), ("good", "full")]
    stored = history.drafts(result.session)
    assert [row.outcome for row in stored] == ["rejected", "correct", None]
    assert stored[1].verdict == finite(verdict("correct").to_json())
    assert history.session(result.session).state == "done"
    document = result.to_json()
    assert (document["schema"], document["history_id"], document["best"]) == (
        "kmint.mint/1",
        str(result.session),
        1,
    )
    assert {"index", "source", "tokens", "seconds", "finish", "duplicate_of", "verdict"} <= set(
        document["drafts"][0]
    )
    assert [to_json(event)["event"] for event in events][0] == "started"


def test_drafts_are_judged_while_others_are_written(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    seen: list[MintEvent] = []
    mint = Mint(
        request(model, 2),
        smith=smith,
        judge=ScriptedReferee({"good": verdict("correct")}),
        history=history,
    )
    for event in mint.run():
        seen.append(event)
        if isinstance(event, Judged):
            assert not smith.cancelled.is_set()
            smith.cancel()
    assert [row.finish for row in last(seen).drafts] == ["stop", "cancelled"]


def test_until_first_stops_the_smith_and_asks_no_more(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    referee = ScriptedReferee({"good": verdict("correct")})
    result = last(
        list(Mint(request(model, 4, "first"), smith=smith, judge=referee, history=history).run())
    )
    assert smith.cancelled.is_set()
    assert (result.best, result.state) == (0, "done")
    assert [draft.finish for draft in result.drafts] == [
        "stop",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    assert referee.questions == [("good", "full")]


def test_with_a_gpu_timing_waits_until_the_smith_is_silent(model: Choice, history: History) -> None:
    answers: list[Event] = [
        answer(0, kernel("slow")),
        answer(1, kernel("bad")),
        answer(2, kernel("fast")),
    ]
    verdicts = {
        "slow@correct": verdict("correct"),
        "fast@correct": verdict("correct"),
        "bad": verdict("rejected", "correct"),
        "slow@full": verdict("loss", ratio=0.8),
        "fast@full": verdict("win", ratio=1.4),
    }
    referee = ScriptedReferee(verdicts)
    events = list(
        Mint(
            request(model, 3),
            smith=ScriptedSmith(answers),
            judge=referee,
            history=history,
            times=True,
        ).run()
    )
    questions = referee.questions
    assert [level for _, level in questions] == ["correct"] * 3 + ["full"] * 2
    result = last(events)
    assert result.ranking == (2, 0, 1)
    assert [row.ratio for row in history.drafts(result.session)] == [0.8, None, 1.4]
    assert [event.final for event in events if isinstance(event, Judged) and event.index == 2] == [
        False,
        True,
    ]


def test_until_first_with_a_gpu_times_the_first(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    referee = ScriptedReferee(
        {"good@correct": verdict("correct"), "good@full": verdict("win", ratio=1.1)}
    )
    result = last(
        list(
            Mint(
                request(model, 2, "first"), smith=smith, judge=referee, history=history, times=True
            ).run()
        )
    )
    assert result.verdicts[0].verdict == "win"


def test_a_stop_keeps_and_judges_what_is_done(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    referee = ScriptedReferee({"good": verdict("correct")}, holds=True)
    mint = Mint(request(model, 2), smith=smith, judge=referee, history=history)
    events = []
    for event in mint.run():
        events.append(event)
        if isinstance(event, DraftFinished) and event.draft.index == 0:
            mint.stop()
        if isinstance(event, Stopping):
            referee.release()
    result = last(events)
    assert (result.state, result.best) == ("stopped", 0)
    assert history.session(result.session).state == "stopped"
    assert [row.outcome for row in history.drafts(result.session)] == ["correct", None]


def test_leaving_early_keeps_what_is_done_and_waits_for_nobody(
    model: Choice, history: History
) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    referee = ScriptedReferee({"good": verdict("correct")}, holds=True)
    run = Mint(request(model, 2), smith=smith, judge=referee, history=history).run()
    assert isinstance(run, Iterator)
    for event in run:
        if isinstance(event, DraftFinished):
            break
    run.close()
    assert smith.cancelled.is_set()
    (summary,) = history.summaries()
    assert (summary.state, summary.drafted) == ("stopped", 1)
    referee.release()
    assert all(
        thread.daemon
        for thread in threading.enumerate()
        if thread.name.startswith(("judge-", "smith-pump"))
    )


def test_a_smith_that_fails_at_once_is_an_error(model: Choice, history: History) -> None:
    smith = ScriptedSmith([Failed("model", "the file is odd")])
    with pytest.raises(ModelError, match="the file is odd"):
        list(Mint(request(model, 2), smith=smith, judge=ScriptedReferee({}), history=history).run())
    assert history.summaries()[0].state == "failed"


def test_a_smith_that_dies_half_way_keeps_its_drafts(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), Failed("killed", "out of memory")])
    mint = Mint(
        request(model, 2),
        smith=smith,
        judge=ScriptedReferee({"good": verdict("correct")}),
        history=history,
    )
    result = last(list(mint.run()))
    assert (result.state, result.best) == ("failed", 0)
    assert mint.failure is not None


def test_a_referee_that_breaks_stops_the_smith(model: Choice, history: History) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    mint = Mint(
        request(model, 2),
        smith=smith,
        judge=ScriptedReferee({"good": RuntimeError("no more")}),
        history=history,
    )
    result = last(list(mint.run()))
    assert isinstance(mint.failure, RuntimeError)
    assert (result.state, result.best, len(history.drafts(result.session))) == ("failed", None, 2)


class FullDisk(History):
    """A history whose disk is full once the session has begun."""

    def add_draft(self, session: int, *drafts: NewDraft) -> None:
        raise StorageError("no space left")


def test_a_full_disk_ends_the_session_but_returns_the_results(
    model: Choice, tmp_path: Path
) -> None:
    smith = ScriptedSmith([answer(0, kernel("good")), tokens(1)], wait_after=1)
    with FullDisk(tmp_path / "full.db") as history:
        mint = Mint(
            request(model, 2),
            smith=smith,
            judge=ScriptedReferee({"good": verdict("correct")}),
            history=history,
        )
        result = last(list(mint.run()))
    assert isinstance(mint.failure, StorageError)
    assert (result.state, result.drafts[0].source) == ("failed", kernel("good"))
