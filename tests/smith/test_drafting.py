"""Drafting through the real engine: batches, seeds, the resident prompt, limits and stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui.smith import (
    DraftDone,
    Event,
    Failed,
    ModelLoaded,
    Prompt,
    RunDone,
    Sampling,
    Smith,
    Token,
)
from kmint_tui.smith.sampling import draft_seed
from tests.sampling import repeats
from tests.smith.conftest import SCRIPT, MakeSmith, done

GREEDY = Sampling(temperature=0)
LONG = (
    "tl.load(x_ptr + cols) " * 60
)  # several hundred tokens, so that attention spans more than one block
PROMPT = Prompt("system", LONG)


def ids(
    smith: Smith, prompt: Prompt | str = PROMPT, drafts: int = 8, **wishes: object
) -> list[tuple[int, ...]]:
    events = list(smith.draft(prompt, drafts, **{"max_tokens": 40, "seed": 5, **wishes}))  # type: ignore[arg-type]
    assert isinstance(events[-1], RunDone), events[-1]
    finished = done(events)
    return [finished[index].ids for index in range(drafts)]


def figures(smith: Smith, prompt: Prompt | str, drafts: int = 2) -> RunDone:
    *_, last = smith.draft(prompt, drafts, max_tokens=4)
    assert isinstance(last, RunDone)
    return last


@pytest.mark.parametrize("model", ["llama", "quantised", "hybrid"])
def test_eight_greedy_copies_give_one_answer(make_smith: MakeSmith, model: str) -> None:
    answers = ids(make_smith(model), sampling=GREEDY, max_tokens=60)
    assert len(set(answers)) == 1
    assert len(set(answers[0])) > 5


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_more_drafts_than_slots_take_turns(make_smith: MakeSmith, model: str) -> None:
    smith = make_smith(model)
    answers = ids(smith, drafts=20, max_tokens=25)
    assert len(set(answers)) > 15
    assert ids(smith, drafts=20, max_tokens=25) == answers
    assert len(set(ids(smith, drafts=20, max_tokens=25, sampling=GREEDY))) == 1


@pytest.mark.parametrize("model", ["llama", "quantised", "hybrid"])
def test_the_same_seed_gives_the_same_tokens_again(make_smith: MakeSmith, model: str) -> None:
    smith = make_smith(model)
    first = ids(smith)
    assert len(set(first)) == 8
    assert all(ids(smith) == first for _ in repeats(2, 9))
    assert ids(smith, seed=6) != first


@pytest.mark.parametrize("model", ["ending", "hybrid"])
@pytest.mark.parametrize("drafts", [1, 5])
def test_tokens_do_not_depend_on_threads_or_earlier_runs(
    make_smith: MakeSmith, model: str, drafts: int
) -> None:
    fresh = ids(make_smith(model, threads=1), drafts=drafts, max_tokens=80)
    other = make_smith(model, threads=2)
    ids(other, Prompt("system", LONG + "something else"), drafts=2)
    ids(other, Prompt("system", "short"), drafts=7, max_tokens=3)
    assert ids(other, drafts=drafts, max_tokens=80) == fresh


@pytest.mark.parametrize("way", ["pool", "device"])
def test_the_way_of_sampling_does_not_change_the_tokens(make_smith: MakeSmith, way: str) -> None:
    # On a GPU the rounding differs with the way of sampling.
    there, here = (
        make_smith("llama", sampling=way, gpu_layers=0),
        make_smith("llama", sampling="turn", gpu_layers=0),
    )
    assert ids(there, drafts=10) == ids(here, drafts=10)
    assert ids(there, drafts=3, sampling=GREEDY) == ids(here, drafts=3, sampling=GREEDY)
    assert ids(there, drafts=3, sampling=Sampling(top_k=0, top_p=1)) == ids(
        here, drafts=3, sampling=Sampling(top_k=0, top_p=1)
    )


def test_drafts_report_their_seed_temperature_and_text(make_smith: MakeSmith) -> None:
    events = list(
        make_smith("llama").draft(PROMPT, 3, sampling=Sampling(ladder=0.3), seed=9, max_tokens=30)
    )
    finished = done(events)
    assert [finished[index].seed for index in range(3)] == [
        draft_seed(9, index) for index in range(3)
    ]
    assert [finished[index].temperature for index in range(3)] == pytest.approx([0.4, 0.7, 1.0])
    for index, draft in finished.items():
        shown = [event for event in events if isinstance(event, Token) and event.draft == index]
        assert "".join(token.text for token in shown) == draft.text
        assert shown[-1].tokens == draft.tokens == len(draft.ids)


def test_a_prompt_stays_resident_and_only_new_pieces_are_read(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    first = figures(smith, PROMPT)
    assert first.reused_tokens == 0 and first.prompt_tokens > 500
    assert figures(smith, PROMPT).reused_tokens == first.prompt_tokens
    repair = figures(smith, Prompt("system", LONG + "\nYour previous attempt failed."))
    assert repair.reused_tokens >= 384 and repair.reused_tokens % 128 == 0
    assert figures(smith, Prompt("another system", LONG)).reused_tokens == 0


def test_a_recurrent_model_reads_a_changed_prompt_again(make_smith: MakeSmith) -> None:
    smith = make_smith("hybrid")
    assert figures(smith, PROMPT).reused_tokens == 0
    assert figures(smith, PROMPT).reused_tokens > 500
    assert figures(smith, Prompt("system", LONG + "more")).reused_tokens == 0


def own_prompts(count: int) -> list[Prompt]:
    return [
        Prompt("system", LONG + f"\nYour draft {number} failed" + " again" * number)
        for number in range(count)
    ]


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_prompts_that_begin_alike_are_drafted_together(make_smith: MakeSmith, model: str) -> None:
    smith = make_smith(model)
    prompts = own_prompts(3)
    alone = [ids(smith, prompt, drafts=1, sampling=GREEDY, max_tokens=12)[0] for prompt in prompts]
    together = list(smith.draft(prompts, 3, sampling=GREEDY, max_tokens=12))
    # Rounding depends on the number of rows in a step, so that answers may differ late.
    assert [done(together)[index].ids[:3] for index in range(3)] == [answer[:3] for answer in alone]
    figures = together[-1]
    assert isinstance(figures, RunDone) and figures.prompt_tokens > 500


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_own_prompts_take_turns_and_repeat(make_smith: MakeSmith, model: str) -> None:
    smith = make_smith(model)
    # More drafts than slots on a CPU, so that some are read while others are decoded.
    first = [
        draft.ids
        for _, draft in sorted(
            done(list(smith.draft(own_prompts(11), 11, seed=2, max_tokens=20))).items()
        )
    ]
    ids(smith, Prompt("system", "something else"), drafts=2)
    again = [
        draft.ids
        for _, draft in sorted(
            done(list(smith.draft(own_prompts(11), 11, seed=2, max_tokens=20))).items()
        )
    ]
    assert again == first
    assert len(set(first)) > 8


def test_equal_prompts_of_their_own_give_one_answer(make_smith: MakeSmith) -> None:
    events = list(make_smith("llama").draft([PROMPT] * 4, 4, sampling=GREEDY, max_tokens=30))
    assert len({draft.ids for draft in done(events).values()}) == 1


def test_the_first_prompt_stays_for_prompts_that_extend_it(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    assert figures(smith, PROMPT).reused_tokens == 0
    *_, last = smith.draft(own_prompts(2), 2, max_tokens=4)
    assert isinstance(last, RunDone) and last.reused_tokens >= 384
    assert figures(smith, PROMPT).reused_tokens >= 384


def test_own_prompts_have_limits_too(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    with pytest.raises(ValueError, match="2 prompts for 3 drafts"):
        next(smith.draft(own_prompts(2), 3))
    *_, event = smith.draft(own_prompts(2), 2, max_tokens=100_000)
    assert isinstance(event, Failed) and event.code == "request"
    cramped = make_smith("llama", max_cells=768)
    *_, event = cramped.draft(own_prompts(8), 8, max_tokens=40)
    assert isinstance(event, Failed) and event.code == "request", event
    assert len(ids(cramped, Prompt("system", "short"), drafts=2, max_tokens=5)) == 2


def test_a_cancel_while_own_prompts_are_read_ends_the_run(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    events: list[Event] = []
    for event in smith.draft(own_prompts(6), 6, max_tokens=300):
        if isinstance(event, ModelLoaded):
            smith.cancel()
        events.append(event)
    assert {draft.finish for draft in done(events).values()} == {"cancelled"}
    assert isinstance(events[-1], RunDone) and events[-1].cancelled


def test_the_answer_ends_at_its_closing_fence(make_smith: MakeSmith) -> None:
    finished = done(list(make_smith("scripted").draft(PROMPT, 3)))
    for draft in finished.values():
        assert draft.finish == "stop"
        assert draft.text == b"".join(SCRIPT[:5]).decode()


def test_a_prefilled_fence_is_not_part_of_the_answer(make_smith: MakeSmith) -> None:
    finished = done(list(make_smith("scripted").draft("x = 1", 1, fence=True)))
    assert finished[0].text == b"".join(SCRIPT[:5]).decode()
    assert finished[0].finish == "stop"


def test_the_token_limit_ends_a_draft(make_smith: MakeSmith) -> None:
    finished = done(list(make_smith("llama").draft(PROMPT, 2, max_tokens=3)))
    assert [(draft.finish, draft.tokens) for draft in finished.values()] == [("length", 3)] * 2


def test_drafts_that_end_leave_and_the_others_go_on(make_smith: MakeSmith) -> None:
    finished = done(
        list(
            make_smith("ending").draft(
                PROMPT, 8, sampling=Sampling(temperature=1.5), max_tokens=15, seed=2
            )
        )
    )
    lengths = {draft.tokens for draft in finished.values()}
    assert {draft.finish for draft in finished.values()} == {"stop", "length"}
    assert len(lengths) > 1 and max(lengths) == 15


def test_a_full_cache_gives_up_the_longest_draft_and_says_so(make_smith: MakeSmith) -> None:
    events = list(make_smith("llama", max_cells=1024).draft(PROMPT, 4, max_tokens=300, seed=1))
    assert isinstance(events[-1], RunDone)
    assert events[-1].cells == 1024
    finished = done(events)
    given_up = [draft for draft in finished.values() if "full" in draft.note]
    assert given_up and all(draft.finish == "length" for draft in given_up)
    assert max(draft.tokens for draft in finished.values()) > min(
        draft.tokens for draft in given_up
    )


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"drafts": 0}, "1 to 128"),
        ({"drafts": 129}, "1 to 128"),
        ({"max_tokens": 0}, "at least one token"),
        ({"max_tokens": 5000}, "do not fit the model's context of 2048"),
        ({"prompt": ""}, "empty"),
    ],
)
def test_impossible_requests_fail_and_the_smith_lives_on(
    make_smith: MakeSmith, wishes: dict[str, object], reason: str
) -> None:
    smith = make_smith("llama")
    asked: dict[str, object] = {"prompt": PROMPT, "drafts": 1, "max_tokens": 5, **wishes}
    *_, last = smith.draft(**asked)  # type: ignore[arg-type]
    assert isinstance(last, Failed) and last.code == "request" and last.exit_code == 2
    assert reason in last.reason
    assert figures(smith, PROMPT).drafts == 2


def test_a_prompt_larger_than_the_allowed_cache_fails(make_smith: MakeSmith) -> None:
    smith = make_smith("llama", max_cells=256)
    *_, last = smith.draft(PROMPT, 1, max_tokens=5)
    assert isinstance(last, Failed) and "do not fit a context of 256" in last.reason
    assert figures(smith, "short").drafts == 2


def test_a_model_without_template_takes_plain_text_only(make_smith: MakeSmith) -> None:
    smith = make_smith("mute")
    events = list(smith.draft(PROMPT, 1, max_tokens=5))
    assert any(isinstance(event, ModelLoaded) for event in events)
    assert (
        isinstance(events[-1], Failed)
        and events[-1].code == "template"
        and events[-1].exit_code == 4
    )
    assert "no chat template" in events[-1].reason
    assert figures(smith, "def run(").drafts == 2


def test_what_was_decided_is_told_with_reasons(make_smith: MakeSmith, tmp_path: Path) -> None:
    events = list(make_smith("llama", tuning=tmp_path / "deep" / "tuning.json").load())
    loaded = events[-1]
    assert isinstance(loaded, ModelLoaded)
    assert (loaded.architecture, loaded.layers, loaded.vocabulary, loaded.recurrent) == (
        "llama",
        2,
        384,
        False,
    )
    assert {choice.name for choice in loaded.choices} >= {
        "offload",
        "memory",
        "gpu_layers",
        "threads",
        "sampling",
    }
    assert all(choice.reason for choice in loaded.choices)
    assert (tmp_path / "deep" / "tuning.json").exists()
    assert isinstance(events[0], ModelLoaded) or not any(
        isinstance(event, DraftDone) for event in events
    )
