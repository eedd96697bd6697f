"""What the memory of a timing block holds while its rounds run: a plan of copies instead of
launches, on the CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch

from referee.plans.arena import FillPattern
from referee.plans.plan import Copy, Fill, View
from referee.replaying.replay import PlanFault, Region
from referee.timing import stage as stage_module
from referee.timing import timed_rows
from referee.timing.stage import Stage
from tests.referee.gpu.staging import (
    INPUT,
    OUTPUT,
    ROUNDS,
    ROWS,
    SCRATCH,
    SIZE,
    LeavingOut,
    doubling,
    given,
    play,
    regions,
)

Staged = Callable[..., Stage]


def test_no_two_calls_share_values_and_none_come_early(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT))
    entry = stage.entry("candidate")
    assert entry.before
    seen = [set(given(stage))]
    for index in range(ROUNDS):
        memory = b"".join(region.bytes.cpu().numpy().tobytes() for region in stage._mine)
        entry.before(index)
        values = given(stage)[index]
        assert values not in memory and not any(values in some for some in seen)
        seen.append({values})
    stage.refill(2, ROUNDS, {})
    entry.before(0)
    assert not any(given(stage)[0] in some for some in seen)


def test_an_answer_that_an_earlier_call_left_behind_is_wrong(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that finds what another one kept in a region that is still to come, and copies it
    instead of working.
    """
    monkeypatch.setattr(stage_module, "COMPARED", 0)
    stage = staged(Copy(OUTPUT, INPUT))

    def copied(index: int) -> None:
        if index == 0:
            regions(stage)[4].tensor(SCRATCH).copy_(regions(stage)[0].tensor(OUTPUT))
        else:
            regions(stage)[index].tensor(OUTPUT).copy_(regions(stage)[4].tensor(SCRATCH))

    play(stage, copied)
    with pytest.raises(PlanFault, match="gave different outputs"):
        stage.check()


def test_an_output_that_a_later_call_writes_is_seen(staged: Staged) -> None:
    """One call that does the work of all of them, whose times would hardly count."""
    stage = staged(Copy(OUTPUT, INPUT))

    def all_at_once(index: int) -> None:
        for region in regions(stage)[: index + 1]:
            region.tensor(OUTPUT).fill_(7.0) if index < ROUNDS - 1 else region.tensor(OUTPUT).copy_(
                region.tensor(INPUT)
            )

    play(stage, all_at_once)
    with pytest.raises(PlanFault, match="was written when the call had ended"):
        stage.check()


def test_right_outputs_pass_in_block_after_block(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT))
    for number in range(2, 5):
        play(stage)
        stage.check()
        stage.refill(number, ROUNDS, {})


def test_a_call_that_writes_nothing_is_seen_by_old_contents(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "COMPARED", 0)
    stage = staged()
    play(stage)
    with pytest.raises(PlanFault, match="different outputs"):
        stage.check()


def test_every_call_is_repeated_at_another_address(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT))
    play(stage)
    outputs = [(call.outputs[0].data_ptr(), call.outputs[0].clone()) for call in stage._calls]
    stage.check()
    assert stage._spare
    seen = [
        (call.outputs[0].data_ptr(), call.outputs[0]) for call in (stage._spare, *stage._calls[:-1])
    ]
    for (timed_at, timed), (again_at, again) in zip(outputs, seen, strict=True):
        assert timed_at != again_at and torch.equal(timed, again) and not bool((timed == 0).all())


def test_an_output_with_an_unchanged_sum_of_words_is_seen(staged: Staged) -> None:
    """One call does the work of all, and makes every output add up to what the others left there."""
    stage = staged(Copy(OUTPUT, INPUT))

    def swapped(index: int) -> None:
        """As the call ends two elements are the wrong way round, and the last call puts them right."""
        for region in regions(stage)[: ROUNDS if index == ROUNDS - 1 else 0] or [
            regions(stage)[index]
        ]:
            row = region.tensor(OUTPUT)[0]
            row[:2] = row[:2].flip(0).clone()

    play(stage, swapped)
    with pytest.raises(PlanFault, match="was written when the call had ended"):
        stage.check()


def test_a_repeated_call_cannot_put_right_what_timed_calls_left(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "COMPARED", 0)
    stage = staged(Copy(OUTPUT, INPUT))
    play(
        stage,
        lambda index: regions(stage)[index].tensor(OUTPUT)[0].fill_(1.0) if index > 2 else None,
    )
    forget = Region.forget

    def mending(region: Region, poison: FillPattern) -> None:
        forget(region, poison)
        for call in stage._calls:
            call.outputs[0].copy_(call.inputs[0])

    monkeypatch.setattr(Region, "forget", mending)
    with pytest.raises(PlanFault, match="different outputs"):
        stage.check()


def test_who_writes_over_the_draws_is_seen(staged: Staged) -> None:
    """With them a kernel would choose what all calls after it are given, and what they are compared
    with.
    """
    stage = staged(Copy(OUTPUT, INPUT))

    def zeroing(index: int) -> None:
        for drawn in stage._drawn:
            drawn[0].zero_()
        for region in regions(stage)[: index + 1]:
            region.tensor(INPUT).zero_()
            region.tensor(OUTPUT).zero_()

    play(stage, zeroing)
    with pytest.raises(PlanFault, match="wrote over the values that inputs are made of"):
        stage.check()


@pytest.mark.parametrize("atomics", [False, True])
def test_an_input_that_one_call_changed_is_seen(staged: Staged, atomics: bool) -> None:
    stage = staged(Copy(OUTPUT, INPUT), atomics=atomics)

    def slip(index: int) -> None:
        if index == 2:
            regions(stage)[2].tensor(INPUT).view(torch.int16)[2, 6] ^= 1

    play(stage, slip)
    with pytest.raises(PlanFault, match="changed an input") as found:
        stage.check()
    assert found.value.guard == "input_mutated"


def test_outputs_of_atomics_are_compared_but_not_by_bits(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT), atomics=True)

    def rounding(index: int) -> None:
        regions(stage)[index].tensor(OUTPUT).view(torch.int16)[0, 0] ^= 1

    play(stage, rounding)
    stage.check()
    stage.refill(2, ROUNDS, {})
    play(
        stage,
        lambda index: regions(stage)[index].tensor(OUTPUT)[1, 1].add_(8.0) if index == 3 else None,
    )
    with pytest.raises(PlanFault, match="an output of a timed call is wrong"):
        stage.check()


def test_a_wrong_output_is_seen(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT), Fill(View(2, 4, (1,), (1,), "float16"), 3.0))
    play(stage)
    with pytest.raises(PlanFault, match="an output of a timed call is wrong") as found:
        stage.check()
    assert found.value.guard == "timed_output"


def test_a_differing_round_is_seen_without_a_full_compare(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "COMPARED", 0)
    stage = staged(Copy(OUTPUT, INPUT))

    def slip(index: int) -> None:
        if index == 4:
            regions(stage)[4].tensor(OUTPUT).view(torch.int16)[1, 2] ^= 1

    play(stage, slip)
    with pytest.raises(PlanFault, match="different outputs"):
        stage.check()


def test_an_answer_kept_outside_the_plan_s_buffers_is_seen(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT))
    play(stage)
    regions(stage)[3].bytes[-SIZE:] = (
        regions(stage)[3].tensor(INPUT).contiguous().view(torch.uint8).flatten()
    )
    with pytest.raises(PlanFault) as found:
        stage.check()
    assert found.value.guard == "guard_band"


def test_a_baseline_gets_its_values_right_before_each_call(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT), rivals=("eager",))
    rival = stage.rival("eager", doubling, ROUNDS)
    assert rival.before and rival.after and rival.rounds == ROUNDS
    play(stage)
    seen = set(given(stage))
    for index in range(ROUNDS):
        for region in stage._theirs["eager"]:
            region.bytes.zero_()
        rival.before(index)
        (made,) = cast("tuple[torch.Tensor]", rival.call(index))
        rival.after(index)
        values = stage._theirs["eager"][index].tensor(INPUT)
        assert torch.equal(made, doubling(values))
        seen.add(values.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    assert len(seen) == ROUNDS + 2


def test_a_candidate_at_the_same_place_gets_new_values(staged: Staged) -> None:
    """A candidate that runs where it ran is given other values and nothing that it left."""
    stage = staged(Copy(OUTPUT, INPUT))
    entry = stage.in_place("candidate", ROUNDS)
    assert entry.before and entry.after
    call, seen = stage._calls[0], set()
    for _ in range(ROUNDS):
        entry.before(0)
        assert not torch.equal(call.outputs[0], call.inputs[0])
        seen.add(call.inputs[0].contiguous().view(torch.uint8).cpu().numpy().tobytes())
        entry.call(0)
        entry.after(0)
    assert len(seen) == ROUNDS and len(stage._kept) == 1
    stage.check_one()


@pytest.mark.parametrize("in_place", [False, True])
def test_one_of_the_partly_checked_outputs_is_compared(staged: Staged, in_place: bool) -> None:
    stage = staged(Copy(OUTPUT, INPUT))
    entry = stage.in_place("candidate", ROUNDS) if in_place else stage.entry("candidate")
    assert entry.before and entry.after
    for index in range(ROUNDS):
        entry.before(index)
        entry.after(index)
    with pytest.raises(PlanFault, match="wrong"):
        stage.check_one()


def test_a_wrong_element_is_named_by_its_own_row(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_rows, "ROWS", ROUNDS * (ROWS - 1))
    stage = staged(Copy(OUTPUT, INPUT), rowwise=True)

    def last_rows(index: int) -> None:
        """So many that one is among those that are chosen; the last is the worst."""
        regions(stage)[index].tensor(OUTPUT)[1] += 1.0
        regions(stage)[index].tensor(OUTPUT)[2] += 30000.0

    play(stage, last_rows)
    with pytest.raises(PlanFault, match="14 of 21 elements wrong, worst at row 2"):
        stage.check()


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("which", range(ROUNDS))
def test_a_single_call_that_is_left_out_is_seen(staged: Staged, rowwise: bool, which: int) -> None:
    """It gives the same when it is repeated."""
    stage = staged(rowwise=rowwise)
    runner = LeavingOut(stage._contest.runner.plan)
    stage._contest = replace(stage._contest, runner=runner)
    stage.refill(2, ROUNDS, {})
    entry = stage.entry("candidate")
    assert entry.before and entry.after
    for index in range(ROUNDS):
        entry.before(index)
        if index == which:
            runner.left_out.add(given(stage)[index])
        entry.call(index)
        entry.after(index)
    with pytest.raises(
        PlanFault, match="an output of a timed call is wrong: 21 of 21 elements wrong"
    ):
        stage.check()


@pytest.mark.parametrize("rowwise", [False, True])
def test_an_input_that_a_call_changes_is_no_wrong_output(staged: Staged, rowwise: bool) -> None:
    stage = staged(Copy(OUTPUT, INPUT), rowwise=rowwise)
    play(stage, lambda index: regions(stage)[index].tensor(INPUT).zero_() if index == 2 else None)
    with pytest.raises(PlanFault, match="changed an input") as caught:
        stage.check()
    assert caught.value.guard == "input_mutated"


def test_a_write_over_a_baselines_draws_is_seen_a_block_later(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT), rivals=("eager",))
    play(stage)
    stage.check()
    stage._lent[0][0].zero_()
    stage.refill(2, ROUNDS, {"eager": ROUNDS})
    play(stage)
    with pytest.raises(PlanFault, match="wrote over the values"):
        stage.check()


def test_whoever_writes_over_a_baselines_draws_is_seen(staged: Staged) -> None:
    stage = staged(Copy(OUTPUT, INPUT), rivals=("eager",))
    play(stage)
    stage._lent[1][0][0, 0] += 1
    with pytest.raises(PlanFault, match="wrote over the values"):
        stage.check()


def test_addresses_chosen_ahead_are_those_of_the_next_block(staged: Staged) -> None:
    """Addresses that are chosen ahead are those of the next block and change nothing in this
    one.
    """
    stage = staged(Copy(OUTPUT, INPUT))
    for number in range(2, 5):
        play(stage)
        held = [(region.address(INPUT), region.tensor(OUTPUT).clone()) for region in regions(stage)]
        stage.ahead()
        planned = [call.region.address(INPUT) for call in stage._next]
        assert [region.address(INPUT) for region in regions(stage)] == [
            address for address, _ in held
        ]
        assert all(
            torch.equal(region.tensor(OUTPUT), output)
            for region, (_, output) in zip(regions(stage), held, strict=True)
        )
        stage.check()
        stage.refill(number, ROUNDS, {})
        assert [
            call.region.address(INPUT) for call in (*stage._calls, stage._spare) if call
        ] == planned
    region = regions(stage)[0]
    play(stage)
    stage.ahead()
    low, _ = region.places.guards[1]
    region.bytes[low] ^= 1
    with pytest.raises(PlanFault, match="outside every buffer"):
        stage.check()
