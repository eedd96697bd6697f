"""Where a timing block's buffers lie, and the seeds of its values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from referee.ops.spec import Cell, TensorSpec
from referee.plans.arena import GUARD_BYTES, LARGE_BYTES, NAN
from referee.plans.plan import Buffer, LaunchPlan, View
from referee.replaying.replay import Region, slab_bytes
from referee.timing.stage_layout import (
    LARGE_STEP,
    SMALL_STEP,
    mixed_positions,
    slab_size,
    spaced_layout,
    subseed,
)

sizes = st.lists(
    st.sampled_from([0, 2, 100, 4096, LARGE_BYTES - 2, LARGE_BYTES, LARGE_BYTES + 2, 5 << 20]),
    min_size=1,
    max_size=6,
)


def plan_of(nbytes: list[int]) -> LaunchPlan:
    return LaunchPlan(tuple(Buffer(size) for size in nbytes), (), (), ())


@given(sizes, st.randoms(use_true_random=False))
def test_buffers_lie_apart_aligned_and_between_watched_bands(
    nbytes: list[int], shuffled: object
) -> None:
    order = list(range(len(nbytes)))
    shuffled.shuffle(order)  # type: ignore[attr-defined]
    found = spaced_layout(plan_of(nbytes), order)
    slots = [found.slots[index] for index in order]
    for slot in slots:
        assert slot.start % (LARGE_STEP if slot.nbytes >= LARGE_BYTES else SMALL_STEP) == 0
        assert any(low == slot.end and high - low >= GUARD_BYTES for low, high in found.guards)
        assert any(high == slot.start for _, high in found.guards)
    for before, after in zip(slots, slots[1:], strict=False):
        assert after.start >= before.end + GUARD_BYTES
    assert slots[-1].end + GUARD_BYTES <= found.total
    assert slab_bytes(found, LARGE_STEP) <= slab_size(plan_of(nbytes))
    assert len(set(found.guards)) == len(found.guards)
    for low, high in found.guards:
        assert low < high
        assert all(high <= slot.start or low >= slot.end for slot in slots)


@pytest.mark.parametrize("distance", [-1, 3 << 20])
def test_a_write_beside_a_large_buffer_is_seen(distance: int) -> None:
    given_plan = LaunchPlan(
        (Buffer(3 << 20), Buffer(64)), (), (), (View(0, 0, (4,), (1,), "float32"),)
    )
    region = Region(given_plan, "cpu", places=spaced_layout(given_plan, (0, 1)), step=LARGE_STEP)
    region.fill((), NAN)
    assert region.damage() is None
    assert (region.bytes.data_ptr() + region.places.slots[0].start) % LARGE_STEP == 0
    region.bytes[region.places.slots[0].start + distance] = 1
    found = region.damage()
    assert found is not None
    assert (found.kind, found.buffer) == ("guard", 0)


def test_seeds_differ_by_purpose_and_repeat() -> None:
    seeds = {
        subseed(5, *parts)
        for parts in (
            ("timed", 1, 0),
            ("timed", 1, 1),
            ("timed", 2, 0),
            ("baseline", 1, 0),
            ("timed", 10),
        )
    }
    assert len(seeds) == 5
    assert subseed(5, "timed", 1, 0) in seeds
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    torch.Generator().manual_seed(max(seeds))


def test_every_byte_of_the_slab_but_the_plan_s_own_is_watched() -> None:
    given_plan = LaunchPlan((Buffer(LARGE_BYTES, 0), Buffer(100)), (), (), ())
    region = Region(given_plan, "cpu", places=spaced_layout(given_plan, (1, 0)), step=LARGE_STEP)
    region.fill((), NAN)
    own = sum(slot.nbytes for slot in region.places.slots)
    assert sum(high - low for low, high in region.places.guards) + own == region.bytes.numel()
    for place in (0, region.bytes.numel() - 1):
        region.bytes[place] = 0
        found = region.damage()
        assert found is not None
        assert (found.kind, found.count) == ("guard", 1)
        region.bytes[place] = 0xFF


@pytest.mark.parametrize(
    ("values", "mixed"),
    [("normal", [0, 1]), ("normal|normal|", [0, 1]), ("normal|uniform@halves|", [0]),
     ("distinct:8:8|normal|", [1]), ("distinct:8:8|normal@pairs|", [])],
)  # fmt: skip
def test_elements_that_belong_together_are_not_mixed(values: str, mixed: list[int]) -> None:
    specs = tuple(TensorSpec(name, (2, 8), "float32", (8, 1)) for name in "ab")
    cell = Cell("made_up", specs, specs[:1], values, (1.0, 1.0), "bench")
    assert mixed_positions([torch.zeros(2, 8), torch.zeros(2, 8)], cell) == mixed
