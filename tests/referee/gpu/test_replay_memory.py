"""Replaying plans of fills and copies on the CPU: regions, poison, guard bands, addresses. Launches
need a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from referee.plans.arena import FILL_PATTERNS, HUGE, NAN, FillPattern
from referee.plans.plan import Buffer, Copy, Fill, Launch, LaunchConfig, LaunchPlan, Step, View
from referee.replaying.replay import PlanFault, Region, Runner, bands, differ

ROWS, COLUMNS = 3, 5
BYTES = ROWS * COLUMNS * 4


def view(buffer: int, dtype: str = "float32") -> View:
    return View(buffer, 0, (ROWS, COLUMNS), (COLUMNS, 1), dtype)


def plan(*steps: Step) -> LaunchPlan:
    return LaunchPlan((Buffer(BYTES, 0), Buffer(BYTES)), (view(0),), steps, (view(1),))


def values() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))


def filled(given: LaunchPlan, *, reverse: bool = False) -> Region:
    region = Region(given, "cpu", reverse=reverse)
    region.fill((values(),), NAN)
    return region


def test_steps_run_in_order_on_the_region() -> None:
    region = filled(
        plan(Copy(view(1), view(0)), Fill(View(1, 0, (COLUMNS,), (1,), "float32"), 2.0))
    )
    Runner(region.plan, {}, None).bind(region, {}).run(0)
    expected = values()
    expected[0] = 2.0
    assert torch.equal(region.tensor(view(1)), expected)
    assert region.damage() is None


def test_nothing_is_written_until_the_plan_writes_it() -> None:
    region = filled(plan())
    assert torch.isnan(region.tensor(view(1))).all()
    region.fill((values(),), HUGE)
    assert (region.tensor(view(1)) > 1e30).all()


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_what_a_run_left_can_be_forgotten_and_nothing_else_is(odd: int) -> None:
    given = plan(Copy(view(1), view(0)))
    region = filled(replace(given, buffers=(given.buffers[0], Buffer(BYTES + odd))))
    Runner(region.plan, {}, None).bind(region, {}).run(0)
    region.forget(HUGE)
    assert (region.tensor(view(1)) > 1e30).all() and region.bytes[
        region.places.slots[1].end - 1
    ] == HUGE.pattern[0]
    assert torch.equal(region.tensor(view(0)), values()) and region.damage() is None


def test_a_region_that_moves_leaves_its_memory_alone() -> None:
    region = filled(plan())
    held, places = region.bytes.clone(), set()
    for _ in range(40):
        region.move()
        places.add(region.places.slots[0].start)
    assert torch.equal(region.bytes, held) and len(places) > 10


def touched(*regions: Region) -> bool:
    return any(bool(flag) for flag in bands(regions))


def test_bands_of_several_regions_are_looked_at_together() -> None:
    regions = [filled(plan()) for _ in range(3)]
    regions[1].fill((values(),), HUGE)
    assert not touched(*regions)
    for region in regions:
        low, high = region.places.guards[1]
        for at in (low, high - 1):
            kept = region.bytes[at].clone()
            region.bytes[at] = 7
            assert touched(*regions)
            region.bytes[at] = kept
    assert not touched(*regions)


def test_a_poison_of_two_bytes_is_looked_at_closely() -> None:
    region = filled(plan())
    region.fill((values(),), FillPattern("two bytes", b"\x01\x02"))
    assert touched(region) and region.damage() is None


@pytest.mark.parametrize("poison", FILL_PATTERNS)
def test_a_byte_of_an_inputs_buffer_beside_its_elements_is_seen(poison: FillPattern) -> None:
    given = plan()
    region = Region(replace(given, buffers=(Buffer(BYTES + 61, 0), given.buffers[1])), "cpu")
    assert region.has_gaps() and not filled(given).has_gaps()
    region.fill((values(),), poison)
    assert not torch.stack(region.touched()).any() and region.damage() is None
    slot = region.places.slots[0]
    for at, kind in (
        (slot.start + BYTES, "input"),
        (slot.end - 1, "input"),
        (slot.start, "input"),
        (slot.end, "guard"),
    ):
        region.bytes[at] += 1
        found = region.damage()
        assert found and (found.kind, found.count) == (kind, 1)
        region.bytes[at] -= 1
    assert region.damage() is None


def test_a_changed_input_is_seen() -> None:
    region = filled(plan(Fill(View(0, 4, (1,), (1,), "float32"), 0.0)))
    Runner(region.plan, {}, None).bind(region, {}).run(0)
    found = region.damage()
    assert found is not None
    assert (found.kind, found.buffer, found.offset) == ("input", 0, 4)


@pytest.mark.parametrize("distance", [-2, BYTES])
def test_a_write_just_outside_a_buffer_is_seen(distance: int) -> None:
    region = filled(plan())
    region.bytes[region.places.slots[1].start + distance] = 0
    found = region.damage()
    assert found is not None
    assert (found.kind, found.buffer, found.offset, found.count) == ("guard", 1, distance, 1)


def test_addresses_are_aligned_and_change_between_fills() -> None:
    region, seen = filled(plan()), set()
    for _ in range(8):
        region.fill((values(),), NAN)
        seen.add(region.address(view(1)))
        assert region.address(view(0)) % 256 == 0
        assert region.address(view(0)) == region.tensor(view(0)).data_ptr()
    assert len(seen) > 1


def test_the_other_order_moves_buffers_apart() -> None:
    one, other = filled(plan()), filled(plan(), reverse=True)
    assert one.places.slots[0].start < one.places.slots[1].start
    assert other.places.slots[0].start > other.places.slots[1].start


def test_differing_bits_are_told_from_equal_values() -> None:
    assert bool(differ(torch.tensor([0.0]), torch.tensor([-0.0])))
    assert not bool(differ(torch.tensor([float("nan")]), torch.tensor([float("nan")])))
    assert bool(differ(torch.tensor([True]), torch.tensor([False])))


def test_a_padded_input_is_compared_with_its_gaps() -> None:
    padded = View(0, 0, (2, 3), (5, 1), "float16")
    given = LaunchPlan(
        (Buffer(16, 0), Buffer(12)), (padded,), (), (View(1, 0, (2, 3), (3, 1), "float16"),)
    )
    region = Region(given, "cpu")
    region.fill((torch.ones(2, 3, dtype=torch.float16),), NAN)
    assert region.damage() is None
    region.bytes[region.places.slots[0].start + 6] = 0
    found = region.damage()
    assert found is not None
    assert (found.kind, found.offset) == ("input", 6)


def test_a_launch_without_a_gpu_is_refused() -> None:
    region = filled(plan(Launch("k", (LaunchConfig((1, 1, 1), ()),))))
    with pytest.raises(PlanFault, match="need a GPU"):
        Runner(region.plan, {}, None).bind(region, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "bool"])
@pytest.mark.parametrize(("start", "length"), [(0, 64), (0, 63), (1, 64), (3, 5), (0, 1), (0, 0)])
def test_one_changed_element_is_seen_wherever_it_lies(dtype: str, start: int, length: int) -> None:
    """Bits are compared in the largest integers that fit, which depends on where both tensors begin
    and end.
    """
    left = torch.zeros(80, dtype=getattr(torch, dtype))[start : start + length]
    right = torch.zeros(80, dtype=getattr(torch, dtype))[:length]
    assert not bool(differ(left, right))
    for place in range(length):
        right[place] = 1
        assert bool(differ(left, right))
        right[place] = 0


def test_tensors_with_gaps_are_compared_without_them() -> None:
    left, right = torch.zeros(4, 8), torch.ones(4, 8)
    right[:, :5] = 0
    assert not bool(differ(left[:, :5], right[:, :5]))
    right[3, 4] = 1
    assert bool(differ(left[:, :5], right[:, :5]))
    assert not bool(differ(torch.zeros(()), torch.zeros(())))
