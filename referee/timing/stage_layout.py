"""The layout of a timing block's memory, and seeds for its random choices."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from referee.ops.operand_recipes import elements_belong_together
from referee.ops.spec import Cell
from referee.plans.arena import GUARD_BYTES, LARGE_BYTES, Layout, Slot
from referee.plans.plan import LaunchPlan
from referee.replaying.replay import (
    Region,
    slab_bytes,
)
from referee.replaying.replay_check import Host

LARGE_STEP, SMALL_STEP = 1 << 21, 512


def subseed(seed: int, *parts: object) -> int:
    """A seed derived from the verdict's secret seed, different for every purpose."""
    text = "\0".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def mixed_positions(operands: Sequence[Tensor], cell: Cell) -> list[int]:
    """The positions of operands that are mixed for every call; the others take turns."""
    kept = elements_belong_together(cell)
    large = [operand.nbytes >= LARGE_BYTES for operand in operands]
    # Mixing small operands next to large ones would occupy the host longer than the device.
    return [
        position
        for position, is_large in enumerate(large)
        if (is_large or not any(large)) and position not in kept
    ]


def spaced_layout(plan: LaunchPlan, order: Sequence[int]) -> Layout:
    """A layout with the buffers in `order`, large ones at multiples of 2 MiB, and bands."""
    slots: dict[int, Slot] = {}
    guards = []
    end = 0
    for index in order:
        buffer = plan.buffers[index]
        step = LARGE_STEP if buffer.nbytes >= LARGE_BYTES else SMALL_STEP
        start = -(-(end + GUARD_BYTES) // step) * step
        guards.append((end, start))
        slots[index] = Slot(start, buffer.nbytes, buffer.input)
        end = start + buffer.nbytes
    total = -(-(end + GUARD_BYTES) // LARGE_STEP) * LARGE_STEP
    return Layout(
        tuple(slots[index] for index in range(len(plan.buffers))), (*guards, (end, total)), total
    )


def regions_of(host: Host, plan: LaunchPlan, shuffled: random.Random, count: int) -> list[Region]:
    """Regions with different orders of their buffers, cut from one allocation."""
    size = slab_size(plan)
    slab = torch.empty(count * size, dtype=torch.uint8, device=host.device)
    regions = []
    for index in range(count):
        order = list(range(len(plan.buffers)))
        shuffled.shuffle(order)
        part = slab[index * size : (index + 1) * size]
        regions.append(
            Region(plan, host.device, places=spaced_layout(plan, order), step=LARGE_STEP, slab=part)
        )
    return regions


def slab_size(plan: LaunchPlan) -> int:
    """Bytes of a slab in which the plan's buffers fit in any order."""
    aligned = sum(buffer.nbytes + LARGE_STEP + GUARD_BYTES for buffer in plan.buffers)
    return slab_bytes(
        Layout((), (), -(-aligned // LARGE_STEP) * LARGE_STEP + LARGE_STEP), LARGE_STEP
    )
