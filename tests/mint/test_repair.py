"""Rounds in the mint loop: what is asked again, when it ends, and what is kept of it."""

from __future__ import annotations

from kmint_tui.events import DraftFinished, Judged, MintEvent, Notice, RoundStarted, to_json
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.minting.result import MintResult
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Event, Failed
from tests.mint.doubles import RoundsSmith, ScriptedReferee, answer, kernel, tokens, verdict
from tests.mint.test_mint import history, last, model, request

__all__ = ["history", "model"]

BAD, WORSE = verdict("rejected", "trace"), verdict("rejected", "screen")


def mint(
    model: Choice, history: History, smith: RoundsSmith, referee: ScriptedReferee, **wishes: object
) -> list[MintEvent]:
    wanted = request(model, 3, **wishes)  # type: ignore[arg-type]
    return list(Mint(wanted, smith=smith, judge=referee, history=history).run())


def origins(result: MintResult) -> list[tuple[int, int, int | None]]:
    return [(draft.index, draft.round, draft.parent) for draft in result.drafts]


def test_every_round_has_a_seed_of_its_own(model: Choice, history: History) -> None:
    """The smith has read, in the reasons of rejections, values that the seed of the last round
    drew.
    """
    smith = RoundsSmith(
        [answer(0, kernel("bad")), answer(1, kernel("worse")), answer(2, kernel("good"))],
        [answer(0, kernel("bad again")), answer(1, kernel("better"))],
    )
    verdicts = {
        "bad": BAD,
        "worse": WORSE,
        "good": verdict("correct"),
        "bad again": BAD,
        "better": verdict("correct"),
    }
    referee = ScriptedReferee(verdicts)
    mint(model, history, smith, referee, repair=1)
    words = [word for word, _ in referee.questions]
    rounds = {word: seed for word, seed in zip(words, referee.seeds, strict=True)}
    assert rounds["bad"] == rounds["worse"] == rounds["good"]
    assert rounds["bad again"] == rounds["better"] not in (rounds["bad"], None)


def test_only_rejected_drafts_go_back_and_only_as_often_as_asked(
    model: Choice, history: History
) -> None:
    smith = RoundsSmith(
        [answer(0, kernel("good")), answer(1, kernel("bad")), answer(2, kernel("worse"))],
        [tokens(0), answer(1, kernel("better")), answer(0, kernel("bad again"))],
        [answer(0, kernel("still bad"))],
    )
    referee = ScriptedReferee(
        {
            "good": verdict("correct"),
            "bad": BAD,
            "worse": WORSE,
            "bad again": BAD,
            "better": verdict("correct"),
            "still bad": BAD,
        }
    )
    events = mint(model, history, smith, referee, repair=2)
    result = last(events)
    assert origins(result) == [
        (0, 0, None),
        (1, 0, None),
        (2, 0, None),
        (3, 1, 1),
        (4, 1, 2),
        (5, 2, 3),
    ]
    assert [event.parents for event in events if isinstance(event, RoundStarted)] == [
        {3: 1, 4: 2},
        {5: 3},
    ]
    first, second, third = smith.prompts
    assert first == result.request.prompt
    assert isinstance(second, tuple) and isinstance(third, tuple)
    one, other = second
    assert one.user.endswith("feedback: trace: it is rejected\nFix it and make it faster.")
    assert other.user.endswith("feedback: screen: it is rejected\nFix it and make it faster.")
    assert third == (one,)
    assert (result.state, result.passed) == ("done", 2)
    stored = history.drafts(result.session)
    assert [(row.number, row.round, row.parent, row.outcome) for row in stored][3:] == [
        (3, 1, 1, "rejected"),
        (4, 1, 2, "correct"),
        (5, 2, 3, "rejected"),
    ]
    document = result.to_json()
    assert (
        document["rounds"],
        document["drafts"][4]["round"],
        document["drafts"][4]["parent"],
    ) == (3, 1, 2)
    lines = [to_json(event) for event in events]
    assert {
        "event": "round",
        "round": 1,
        "drafts": [{"index": 3, "parent": 1}, {"index": 4, "parent": 2}],
    }.items() <= next(line for line in lines if line["event"] == "round").items()


def test_without_repair_there_is_one_round(model: Choice, history: History) -> None:
    smith = RoundsSmith([answer(index, kernel("bad")) for index in range(3)])
    result = last(mint(model, history, smith, ScriptedReferee({"bad": BAD})))
    assert len(result.drafts) == len(smith.prompts) * 3 == 3


def test_repair_ends_when_nothing_is_left_to_repair(model: Choice, history: History) -> None:
    again: list[Event] = [answer(0, kernel("good")), answer(1, kernel("better"))]
    smith = RoundsSmith(
        [answer(0, kernel("bad")), answer(1, kernel("bad")), answer(2, kernel("good"))], again
    )
    referee = ScriptedReferee(
        {"bad": BAD, "good": verdict("correct"), "better": verdict("correct")}
    )
    result = last(mint(model, history, smith, referee, repair=5))
    # A repeated kernel is repaired like the one it repeats, in the same run.
    assert origins(result)[3:] == [(3, 1, 0), (4, 1, 1)]
    assert smith.asked == [3, 2]
    assert [draft.duplicate_of for draft in result.drafts] == [None, 0, None, 2, None]


def test_until_first_repairs_until_one_passes(model: Choice, history: History) -> None:
    smith = RoundsSmith(
        [answer(index, kernel("bad")) for index in range(3)],
        [answer(0, kernel("good")), answer(1, kernel("bad")), tokens(2)],
        wait_in=1,
    )
    referee = ScriptedReferee({"bad": BAD, "good": verdict("correct")})
    result = last(mint(model, history, smith, referee, until="first", repair=4))
    assert smith.cancelled.is_set()
    assert (result.best, result.state, smith.asked) == (3, "done", [3, 3])
    assert [draft.finish for draft in result.drafts[3:]] == ["stop", "stop", "cancelled"]


def test_until_first_with_an_early_pass_has_no_second_round(
    model: Choice, history: History
) -> None:
    smith = RoundsSmith([answer(0, kernel("bad")), answer(1, kernel("good")), tokens(2)], wait_in=0)
    result = last(
        mint(
            model,
            history,
            smith,
            ScriptedReferee({"bad": BAD, "good": verdict("correct")}),
            until="first",
            repair=3,
        )
    )
    assert (result.best, smith.asked) == (1, [3])


def test_a_stop_ends_the_rounds(model: Choice, history: History) -> None:
    smith = RoundsSmith(
        [answer(index, kernel("bad")) for index in range(3)],
        [answer(0, kernel("bad")), tokens(1)],
        wait_in=1,
    )
    session = Mint(
        request(model, 3, repair=4),
        smith=smith,
        judge=ScriptedReferee({"bad": BAD}),
        history=history,
    )
    events: list[MintEvent] = []
    for event in session.run():
        events.append(event)
        if isinstance(event, DraftFinished) and event.draft.round == 1:
            session.stop()
    result = last(events)
    assert (result.state, smith.asked) == ("stopped", [3, 3])
    assert [draft.finish for draft in result.drafts][3:] == ["stop", "cancelled", "cancelled"]
    assert history.session(result.session).state == "stopped"


def test_a_smith_that_dies_in_a_later_round_keeps_everything(
    model: Choice, history: History
) -> None:
    dying: list[Event] = [answer(0, kernel("good")), Failed("killed", "out of memory")]
    smith = RoundsSmith(
        [answer(0, kernel("bad")), answer(1, kernel("bad")), answer(2, kernel("worse"))], dying
    )
    referee = ScriptedReferee({"bad": BAD, "worse": WORSE, "good": verdict("correct")})
    session = Mint(request(model, 3, repair=1), smith=smith, judge=referee, history=history)
    events = list(session.run())
    result = last(events)
    assert session.failure is not None
    assert (result.state, result.best, len(smith.prompts)) == ("failed", 3, 2)
    assert [event.index for event in events if isinstance(event, Judged)][-1] == 3


def test_a_repair_prompt_that_does_not_fit_costs_only_the_round(
    model: Choice, history: History
) -> None:
    first: list[Event] = [
        answer(0, kernel("good")),
        answer(1, kernel("bad")),
        answer(2, kernel("bad")),
    ]
    smith = RoundsSmith(first, [Failed("request", "900 prompt tokens and 64 more do not fit")])
    session = Mint(
        request(model, 3, repair=2),
        smith=smith,
        judge=ScriptedReferee({"good": verdict("correct"), "bad": BAD}),
        history=history,
    )
    events = list(session.run())
    assert "no more rounds: 900 prompt tokens and 64 more do not fit" in [
        event.text for event in events if isinstance(event, Notice)
    ]
    assert (last(events).state, last(events).best, session.failure) == ("done", 0, None)
