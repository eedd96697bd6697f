"""What a round keeps: right kernels alone, the fastest with more weight, nothing held out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forge.drafting import Draft
from forge.figures import change, figures_of
from forge.heldout import is_held_out
from forge.judging import Reward, reward_of
from forge.places import Place, places
from forge.selection import FASTEST, examples, replayed, select, structure_of
from kmint_tui.errors import UsageError
from kmint_tui.graph.operations import catalogue_names, catalogue_program
from kmint_tui.graph.program import stage_text
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import kernel_source, structures_of
from referee.ops import catalogue
from referee.verdict import Verdict

ROW, TILE, LOOP = "BLOCK = triton.next_power_of_2(N)", "ROWS: tl.constexpr", "for start in range(0"


@pytest.fixture(scope="module")
def softmax() -> tuple[Place, ...]:
    return places(["softmax"], (), ("32768x512", "2048x16384"), heldout=False)


def draft(place: Place, number: int, answer: str) -> Draft:
    return Draft(
        place=place.name,
        number=number,
        answer=answer,
        source=answer,
        same=answer,
        tokens=1,
        cut=False,
    )


def timed(ratio: float, *, right: bool = True) -> Reward:
    return Reward(
        right=right, verdict="win", reason="", ratio=ratio, low=ratio - 0.02, high=ratio + 0.02
    )


def test_a_wrong_draft_is_never_kept(softmax: tuple[Place, ...]) -> None:
    place = softmax[0]
    drafts = [draft(place, number, text) for number, text in enumerate((ROW, TILE, LOOP))]
    rewards = {
        (place.name, ROW): timed(9.0, right=False),
        (place.name, TILE): timed(1.1),
    }
    kept = select(softmax, drafts, rewards, 1)
    assert [one.answer for one in kept] == [TILE]
    assert kept[0].weight == FASTEST


def test_only_an_accepted_kernel_has_a_ratio() -> None:
    timing = {"cell": "here", "bar": "eager", "ratio": {"ratio": 1.5, "low": 1.4, "high": 1.6}}
    won = Verdict("softmax", "win", "done", "", None, "replay", timing=timing)
    found = reward_of(won, "here")
    assert (found.right, found.ratio, found.low, found.high, found.bar) == (
        True,
        1.5,
        1.4,
        1.6,
        "eager",
    )
    assert reward_of(won, "elsewhere").ratio is None
    for other in (
        replace(won, verdict="rejected", stage="honest"),
        replace(won, verdict="error"),
        replace(won, verdict="unsure", stage="compile"),
    ):
        wrong = reward_of(other, "here")
        assert (wrong.right, wrong.ratio, wrong.is_timed) == (False, None, False)


def test_only_kernels_with_a_separate_interval_count_less(softmax: tuple[Place, ...]) -> None:
    place = softmax[0]
    ratios = {ROW: 1.00, TILE: 1.30, LOOP: 1.27}
    drafts = [draft(place, number, text) for number, text in enumerate(ratios)]
    rewards = {(place.name, text): timed(ratio) for text, ratio in ratios.items()}
    kept = {one.answer: one.weight for one in select(softmax, drafts, rewards, 1)}
    assert kept == {ROW: 1, TILE: FASTEST, LOOP: FASTEST}


def test_right_kernels_without_times_count_alike(softmax: tuple[Place, ...]) -> None:
    drafts = [draft(place, 0, text) for place in softmax for text in (ROW, TILE, ROW)]
    right = Reward(right=True, verdict="correct", reason="")
    kept = select(softmax, drafts, {(one.place, one.same): right for one in drafts}, 1)
    assert [(one.place, one.structure, one.weight) for one in kept] == [
        (place.name, structure, 1) for place in softmax for structure in ("row", "tile")
    ]


def test_a_faster_kernel_of_a_later_round_takes_the_weight(softmax: tuple[Place, ...]) -> None:
    place = softmax[0]
    first = select(softmax, [draft(place, 0, ROW)], {(place.name, ROW): timed(1.0)}, 1)
    second = select(softmax, [draft(place, 0, TILE)], {(place.name, TILE): timed(1.5)}, 2, first)
    assert [(one.answer, one.round, one.weight) for one in second] == [
        (ROW, 1, 1),
        (TILE, 2, FASTEST),
    ]


def test_held_out_names_are_refused_for_training() -> None:
    with pytest.raises(UsageError, match="reglu is held out"):
        places(["reglu"], (), (), heldout=False)
    with pytest.raises(UsageError, match="rmsnorm is held out"):
        # It equals a held-out function.
        places(["rmsnorm"], (), (), heldout=False)
    function = "bench/functions/gates.py:quick_gelu@x=f16[B,S,N]"
    with pytest.raises(UsageError, match="quick_gelu is held out"):
        places([], [function], (), heldout=False)
    with pytest.raises(UsageError, match="softmax is not held out"):
        places(["softmax"], (), (), heldout=True)


def test_nothing_held_out_is_kept_or_replayed(softmax: tuple[Place, ...]) -> None:
    held = places(["layernorm_silu"], (), (), heldout=True)
    with pytest.raises(ValueError, match="layernorm_silu .* is held out"):
        select([*softmax, *held], [], {}, 1)
    texts = [
        "\n".join(stage_text(program.stages[0]).splitlines()[2:])
        for name in catalogue_names()
        if (program := catalogue_program(name)) is not None and is_held_out(program)
    ]
    assert len(texts) > 20
    found = replayed(60, {stage_text(softmax[0].stage)}, 7)
    assert len(found) >= 60
    assert not [one for one in found if any(text in one.prompt for text in texts)]


def test_an_example_is_given_as_often_as_its_weight(softmax: tuple[Place, ...]) -> None:
    place = softmax[0]
    (kept,) = select(softmax, [draft(place, 0, TILE)], {(place.name, TILE): timed(1.0)}, 1)
    made = examples(softmax, [kept], 3)
    assert len(made) == FASTEST
    assert all(stage_text(place.stage) in one.prompt and TILE in one.answer for one in made)
    assert examples(softmax, [replace(kept, weight=1)], 3) == made[:1]


def test_the_prompt_states_the_shape(softmax: tuple[Place, ...]) -> None:
    assert [one.shape_class for one in softmax] == ["shape 15 9", "shape 11 14"]
    assert softmax[0].prompt != softmax[1].prompt
    # A flat operation has one prompt at shapes with as many elements.
    assert len(places(["swiglu"], (), ("32768x512", "1024x16384"), heldout=False)) == 1


def test_the_structure_is_read_from_the_text() -> None:
    seen = set()
    for op in catalogue():
        program = catalogue_program(op.name)
        if program is None:
            continue
        stage = program.stages[program.main]
        for structure in structures_of(stage):
            assert structure_of(kernel_source(stage, structure, Settings())) == structure
            seen.add(structure)
    assert len(seen) == 8
    assert structure_of("x = 1") == "other"


def test_figures_count_drafts_and_name_the_speed(softmax: tuple[Place, ...]) -> None:
    first, second = softmax
    drafts = [
        draft(first, 0, ROW),
        draft(first, 1, ROW),
        draft(first, 2, TILE),
        draft(second, 0, LOOP),
        draft(second, 1, TILE),
    ]
    rewards = {
        (first.name, ROW): timed(1.0),
        (first.name, TILE): timed(4.0),
        (second.name, LOOP): timed(7.0, right=False),
    }
    found = figures_of(softmax, drafts, rewards)
    assert (found["drafts"], found["judged"], found["right"], found["share_right"]) == (
        5,
        4,
        3,
        0.75,
    )
    assert found["share_with_kernel"] == 1.0
    assert found["structures"] == {"row": 2, "tile": 1}
    assert found["speed"] == 4.0 and found["speed_of_right"] == pytest.approx(
        4 ** (1 / 3), abs=1e-4
    )
    assert found["by_class"]["shape 11 14"]["share_right"] == 0.0
    assert found["by_class"]["shape 11 14"]["speed"] is None
    better = figures_of(softmax, drafts, {**rewards, (first.name, TILE): timed(5.0)})
    assert change(found, better)["faster"] == 1.25
