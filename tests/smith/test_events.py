"""Events on the pipe: every event arrives unchanged, and anything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmint_tui.smith import (
    Choice,
    DraftDone,
    Event,
    Failed,
    Loading,
    ModelLoaded,
    Note,
    RunDone,
    Sampling,
    Token,
)
from kmint_tui.smith.events import Chat, Measured, decode, encode
from kmint_tui.smith.sampling import RANDOM_SEED, draft_seed

RUN = RunDone(
    drafts=1,
    tokens=2,
    seconds=0.5,
    prompt_tokens=3,
    reused_tokens=0,
    prefill_seconds=0.1,
    first_token_seconds=0.2,
    steps=1,
    step_seconds=0.1,
    sampling_share=0.01,
    cells=256,
    threads=2,
    cancelled=False,
    choices=(Choice("threads", "2", "measured"),),
)
ENTRIES = st.builds(
    Measured, st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.booleans())
)
EVENTS = st.one_of(
    ENTRIES,
    *(
        st.from_type(kind)
        for kind in (Loading, Chat, ModelLoaded, Token, DraftDone, Note, RunDone, Failed)
    ),
)


@given(EVENTS.filter(lambda event: "nan" not in repr(event)))
def test_events_survive_the_pipe(event: Event) -> None:
    line = encode(event)
    assert line.isascii() and "\n" not in line
    assert decode(line) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ModelLoaded",
        "[]",
        "3",
        "[" * 100_000,
        '{"event": "Exploded"}',
        '{"event": ["Note"]}',
        '{"event": "Note"}',
        '{"event": "Note", "text": "a", "more": 1}',
        json.dumps({**json.loads(encode(RUN)), "choices": [{"name": "a"}]}),
        json.dumps(
            {
                **json.loads(
                    encode(
                        DraftDone(
                            draft=0,
                            text="",
                            finish="stop",
                            tokens=0,
                            seconds=0.0,
                            seed=0,
                            temperature=0.0,
                        )
                    )
                ),
                "ids": 3,
            }
        ),
        json.dumps(
            {
                **json.loads(
                    encode(
                        DraftDone(
                            draft=0,
                            text="",
                            finish="stop",
                            tokens=0,
                            seconds=0.0,
                            seed=0,
                            temperature=0.0,
                        )
                    )
                ),
                "ids": ["a"],
            }
        ),
        json.dumps(
            {
                **json.loads(
                    encode(
                        DraftDone(
                            draft=0,
                            text="",
                            finish="stop",
                            tokens=0,
                            seconds=0.0,
                            seed=0,
                            temperature=0.0,
                        )
                    )
                ),
                "finish": "begin",
            }
        ),
        '{"event": "Note", "text": 3}',
        '{"event": "Loading", "fraction": true}',
        '{"event": "Measured", "key": "a", "entry": []}',
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="."):
        decode(line)


def test_choices_come_back_as_choices() -> None:
    assert decode(encode(RUN)) == RUN


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("request", 2),
        ("environment", 3),
        ("gpu", 3),
        ("memory", 3),
        ("model", 4),
        ("template", 4),
        ("killed", 70),
    ],
)
def test_failures_know_their_exit_code(code: str, status: int) -> None:
    assert Failed(code, "reason").exit_code == status  # type: ignore[arg-type]


@given(st.integers(-(2**70), 2**70), st.integers(0, 300))
def test_draft_seeds_are_32_bits_and_never_random(seed: int, draft: int) -> None:
    assert 0 <= draft_seed(seed, draft) < RANDOM_SEED
    assert draft_seed(seed, draft) == draft_seed(seed, draft)
    assert draft_seed(seed, draft) != draft_seed(seed, draft + 1) or draft_seed(
        seed, draft
    ) != draft_seed(seed + 1, draft)


def test_the_ladder_spreads_temperatures_evenly() -> None:
    assert Sampling().temperatures(3) == (0.7, 0.7, 0.7)
    assert Sampling(temperature=0.6, ladder=0.3).temperatures(4) == pytest.approx(
        (0.3, 0.5, 0.7, 0.9)
    )
    assert Sampling(ladder=0.3).temperatures(1) == (0.7,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": 9},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 1},
        {"ladder": -0.1},
        {"ladder": 1},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Sampling(**wrong)  # type: ignore[arg-type]
