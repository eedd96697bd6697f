"""The arena: where buffers lie, and what it notices of writes that were not allowed."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from referee.plans.arena import (
    ALIGNMENT,
    FILL_PATTERNS,
    GUARD_BYTES,
    HUGE,
    NAN,
    FillPattern,
    damage,
    layout,
    prepare,
    second_fill_pattern,
    window,
)
from referee.plans.plan import Buffer, LaunchPlan, View
from tests.sampling import sample

SHAPE = (3, 5)
INPUT = View(0, 8, SHAPE, (7, 1), "float32")
OUTPUT = View(1, 0, SHAPE, (5, 1), "float16")
PLAN = LaunchPlan((Buffer(8 + 4 * 19, input=0), Buffer(30), Buffer(1)), (INPUT,), (), (OUTPUT,))


def arena(poison: FillPattern, reverse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    places = layout(PLAN, reverse=reverse)
    # Not at the start of its storage: the executors cut several arenas out of one allocation.
    region = torch.empty(places.total + 4096, dtype=torch.uint8)[4096:]
    data = torch.randn(SHAPE)
    prepare(region, places, PLAN, [data], poison)
    return region, data


def test_second_runs_find_everything_but_nan_in_turn() -> None:
    found = [second_fill_pattern(f"f32-{rows}x1000-normal-x1") for rows in range(60)]
    assert {poison: found.count(poison) > 5 for poison in found} == dict.fromkeys(
        FILL_PATTERNS[1:], True
    )


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=12), st.booleans())
def test_buffers_are_aligned_and_apart(sizes: list[int], reverse: bool) -> None:
    places = layout(LaunchPlan(tuple(Buffer(size) for size in sizes), (), (), ()), reverse=reverse)
    assert [slot.nbytes for slot in places.slots] == sizes
    assert all(slot.start % ALIGNMENT == 0 for slot in places.slots)
    spans = sorted(
        [(slot.start, slot.end) for slot in places.slots if slot.nbytes] + list(places.guards)
    )
    assert spans[0][0] == 0 and spans[-1][1] == places.total
    assert all(end == start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert all(high - low >= GUARD_BYTES for low, high in places.guards)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_poison_is_nan_or_huge_in_every_floating_type(dtype: str) -> None:
    view = View(0, 0, (4,), (1,), dtype)
    plan = LaunchPlan((Buffer(32),), (), (), (view,))
    places = layout(plan)
    region = torch.empty(places.total, dtype=torch.uint8)
    prepare(region, places, plan, [], NAN)
    assert window(region, places, view).isnan().all()
    prepare(region, places, plan, [], HUGE)
    assert (window(region, places, view) > 6e4).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("poison", FILL_PATTERNS)
def test_writing_scratch_and_outputs_is_no_damage(poison: FillPattern, reverse: bool) -> None:
    region, data = arena(poison, reverse)
    places = layout(PLAN, reverse=reverse)
    assert torch.equal(window(region, places, INPUT), data)
    window(region, places, OUTPUT).fill_(1.0)
    region[places.slots[2].start] = 7
    assert damage(region, places, PLAN, [data], poison) is None


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("poison", FILL_PATTERNS)
def test_every_single_changed_byte_is_damage(poison: FillPattern, reverse: bool) -> None:
    region, data = arena(poison, reverse)
    places = layout(PLAN, reverse=reverse)
    probes = [edge for low, high in places.guards for edge in (low, high - 1)]
    for offset in probes:
        region[offset] ^= 1
        found = damage(region, places, PLAN, [data], poison)
        assert found is not None and (found.kind, found.count) == ("guard", 1)
        assert places.slots[found.buffer].start + found.offset == offset
        region[offset] ^= 1
    slot = places.slots[0]
    for offset in range(slot.start, slot.end):
        region[offset] ^= 1
        found = damage(region, places, PLAN, [data], poison)
        assert found is not None and (found.kind, found.buffer, found.offset, found.count) == (
            "input",
            0,
            offset - slot.start,
            1,
        )
        region[offset] ^= 1


@pytest.mark.parametrize(
    "view",
    [
        View(1, 0, (16,), (1,), "float16"),
        View(1, 2, (15,), (1,), "float16"),
        View(1, 1, (2,), (1,), "float16"),
        View(1, -2, (2,), (1,), "float16"),
        View(1, 28, (2, 2), (1, -1), "float16"),
    ],
)
def test_a_view_outside_its_buffer_or_misaligned_is_refused(view: View) -> None:
    region, _ = arena(NAN)
    with pytest.raises(ValueError, match="does not fit"):
        window(region, layout(PLAN), view)


def test_empty_views_need_no_space() -> None:
    region, _ = arena(NAN)
    assert window(region, layout(PLAN), View(1, 30, (0, 5), (5, 1), "float16")).shape == (0, 5)


def test_a_longer_band_before_each_buffer_takes_wrapped_writes() -> None:
    lead = 1 << 20
    places = layout(PLAN, lead=lead)
    assert all(high - low >= lead + GUARD_BYTES for low, high in places.guards[:-1])
    region = torch.empty(places.total, dtype=torch.uint8)
    data = torch.zeros(INPUT.shape)
    prepare(region, places, PLAN, [data], NAN)
    region[places.slots[0].start - lead] ^= 1
    found = damage(region, places, PLAN, [data], NAN)
    assert found is not None and (found.kind, found.buffer, found.offset, found.count) == (
        "guard",
        0,
        -lead,
        1,
    )


def test_damage_over_several_pieces_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.plans.arena.PIECE_BYTES", 10_000)
    places = layout(PLAN)
    region = torch.empty(places.total, dtype=torch.uint8)
    data = torch.zeros(INPUT.shape)
    prepare(region, places, PLAN, [data], NAN)
    low, _ = places.guards[0]
    region[low + 9_990 : low + 30_010] = 0
    found = damage(region, places, PLAN, [data], NAN)
    assert (
        found is not None
        and found.count == 20_020
        and found.offset == low + 9_990 - places.slots[found.buffer].start
    )


LARGE = 1 << 20
BIG = {
    "whole": (View(0, 0, (LARGE,), (1,), "int8"), LARGE),
    "odd": (View(0, 0, (LARGE + 1,), (1,), "int8"), LARGE + 1),
    "rows": (View(0, 0, (64, LARGE // 64), (LARGE // 64, 1), "float32"), 4 * LARGE),
    "columns": (View(0, 0, (64, LARGE // 64), (1, 64), "float16"), 2 * LARGE),
    "gap at the end": (View(0, 0, (LARGE,), (1,), "int8"), LARGE + 2),
}


@pytest.mark.parametrize(
    ("poison", "reverse", "name"), sample(product(FILL_PATTERNS, [False, True], BIG), step=3)
)
def test_large_inputs_leave_no_byte_as_it_was(
    name: str, reverse: bool, poison: FillPattern
) -> None:
    view, nbytes = BIG[name]
    small = View(1, 0, (5,), (1,), "float32")
    plan = LaunchPlan(
        (Buffer(nbytes, input=0), Buffer(20, input=1), Buffer(7)), (view, small), (), ()
    )
    places = layout(plan, reverse=reverse)
    inputs = [torch.ones(view.shape, dtype=getattr(torch, view.dtype)), torch.ones(5)]
    expected = torch.empty(places.total, dtype=torch.uint8)
    expected.view(torch.int16).fill_(int.from_bytes(poison.pattern, "little", signed=True))
    for given_view, tensor in zip(plan.inputs, inputs, strict=True):
        window(expected, places, given_view).copy_(tensor)
    region = torch.full((places.total,), 0x55, dtype=torch.uint8)
    prepare(region, places, plan, inputs, poison)
    assert torch.equal(region, expected)
    assert damage(region, places, plan, inputs, poison) is None
