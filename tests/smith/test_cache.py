"""A cache of its own for each draft gives the tokens of a shared one, whichever drafts end first."""

from __future__ import annotations

import pytest

from kmint_tui.smith import Event, Loaded, Prompt, RunDone, Sampling, Smith
from tests.smith.conftest import MakeSmith, done

LONG = "tl.load(x_ptr + cols) " * 60
PROMPT = Prompt("system", LONG)
LIVELY = Sampling(temperature=1.5)


def tokens(smith: Smith, prompt: Prompt | list[Prompt] = PROMPT, drafts: int = 8, **wishes: object) -> list[tuple[int, ...]]:
    events = list(smith.draft(prompt, drafts, **{"max_tokens": 40, "seed": 5, "sampling": LIVELY, **wishes}))  # type: ignore[arg-type]
    assert isinstance(events[-1], RunDone), events[-1]
    finished = done(events)
    return [finished[index].ids for index in range(drafts)]


@pytest.mark.parametrize("model", ["ending", "hybrid"])
@pytest.mark.parametrize("drafts", [1, 8])
def test_the_cache_does_not_change_the_tokens(make_smith: MakeSmith, model: str, drafts: int) -> None:
    # On a GPU the rounding differs with the cache.
    shared, separate = make_smith(model, cache="shared", gpu_layers=0), make_smith(model, cache="separate", gpu_layers=0)
    expected = tokens(shared, drafts=drafts, seed=2)
    assert tokens(separate, drafts=drafts, seed=2) == expected
    assert tokens(separate, drafts=drafts, seed=2) == expected
    if model == "ending" and drafts > 1:
        assert len({len(answer) for answer in expected}) > 2, "drafts must end at different moments to leave gaps"


@pytest.mark.parametrize("model", ["ending", "hybrid"])
def test_drafts_that_take_turns_repeat(make_smith: MakeSmith, model: str) -> None:
    # A draft may part from its twin in a shared cache: rows lie elsewhere in the batch, and with them the rounding.
    smith = make_smith(model, cache="separate")
    assert tokens(smith, drafts=11) == tokens(smith, drafts=11)


def test_samplers_on_the_device_share_the_cache(make_smith: MakeSmith) -> None:
    smith = make_smith("ending", cache="separate", sampling="device", gpu_layers=0)
    loaded = next(event for event in smith.load() if isinstance(event, Loaded))
    choice = next(choice for choice in loaded.choices if choice.name == "cache")
    assert choice.value == "shared" and "move" in choice.reason
    assert tokens(smith, seed=2) == tokens(make_smith("ending", sampling="turn", gpu_layers=0), seed=2)


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_eight_greedy_copies_give_one_answer(make_smith: MakeSmith, model: str) -> None:
    answers = tokens(make_smith(model, cache="separate"), sampling=Sampling(temperature=0), max_tokens=60)
    assert len(set(answers)) == 1
    assert len(set(answers[0])) > 5


@pytest.mark.parametrize("model", ["ending", "hybrid"])
def test_prompts_of_their_own_do_not_depend_on_the_cache(make_smith: MakeSmith, model: str) -> None:
    prompts = [Prompt("system", LONG + f"\nYour draft {number} failed" + " again" * number) for number in range(5)]
    separate, shared = make_smith(model, cache="separate", gpu_layers=0), make_smith(model, cache="shared", gpu_layers=0)
    assert tokens(separate, prompts, 5) == tokens(shared, prompts, 5)


def test_a_kept_prompt_is_used_again_and_a_larger_job_gets_a_larger_cache(make_smith: MakeSmith) -> None:
    smith = make_smith("llama", cache="separate")
    first = tokens(smith, drafts=3)
    *_, again = smith.draft(PROMPT, 3, max_tokens=40, seed=5)
    assert isinstance(again, RunDone) and again.reused_tokens == again.prompt_tokens
    *_, longer = smith.draft(PROMPT, 2, max_tokens=600)
    assert isinstance(longer, RunDone) and longer.cells > again.cells
    assert tokens(smith, drafts=3) == first


def test_where_they_do_not_fit_the_drafts_share(make_smith: MakeSmith) -> None:
    smith = make_smith("llama", cache="separate", max_cells=1024)
    events: list[Event] = list(smith.draft(PROMPT, 4, max_tokens=20, seed=1))
    assert isinstance(events[-1], RunDone) and events[-1].cells <= 1024
    assert len(tokens(smith, drafts=4)) == 4


def test_the_choice_is_told(make_smith: MakeSmith) -> None:
    for wish, value in (("separate", "separate"), (None, "shared")):
        loaded = next(event for event in make_smith("llama", cache=wish, gpu_layers=0).load() if isinstance(event, Loaded))
        assert next(choice.value for choice in loaded.choices if choice.name == "cache") == value
