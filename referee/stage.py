"""The memory a timing block runs on: fresh values at fresh addresses for every contestant and round.

Every contestant has a region of its own for each round, so none finds memory warmed by another. Buffers lie as torch's allocator
would place them (large ones at multiples of 2 MiB), because that is how a user's tensors lie. The candidate's values are never
given to a baseline, and after each call what the candidate wrote is covered until the block has ended, since later rounds share
its values: no call finds a right answer on the device. Runs in the replay worker.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from referee.arena import GUARD_BYTES, LARGE_BYTES, NAN, Layout, Slot
from referee.baselines import Baselines
from referee.compare import compare
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.values import draw
from referee.plan import LaunchPlan
from referee.replay import Bound, Choice, PlanFault, Region, Runner, differ, slab_bytes
from referee.replay_check import Host, describe, free_bytes, outputs_of
from referee.rounds import Entry

LARGE_STEP, SMALL_STEP = 1 << 21, 512
MEMORY_SHARE = 0.25
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Contest:
    """What is timed: a plan at a cell, and who it is up against."""

    task: Task
    cell: Cell
    runner: Runner
    choice: Choice
    atomics: bool
    baselines: Baselines
    seed: int


def subseed(seed: int, *parts: object) -> int:
    """A seed derived from the verdict's secret one, different for every purpose."""
    text = "\0".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def spread(plan: LaunchPlan, order: Sequence[int]) -> Layout:
    """A layout with the buffers in `order`, large ones at multiples of 2 MiB, with at least a guard band between them."""
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
    return Layout(tuple(slots[index] for index in range(len(plan.buffers))), (*guards, (end, total)), total)


class Stage:
    """Regions for `rounds` rounds. `refill` before a block, `check` after it."""

    def __init__(self, host: Host, contest: Contest, rounds: int, values: int) -> None:
        self._host, self._contest, self._values = host, contest, values
        plan = contest.runner.plan
        alone = replace(plan, buffers=plan.buffers[: len(plan.inputs)], steps=(), outputs=())
        shuffled = self._shuffled = random.Random(subseed(contest.seed, "layout"))
        outputs = sum(plan.buffers[view.buffer].nbytes for view in plan.outputs)
        size = slab_size(plan) + len(contest.baselines.ready) * (slab_size(alone) + outputs)
        room = int(MEMORY_SHARE * free_bytes() / size)
        self.rounds = max(LEAST_ROUNDS, min(rounds, room))
        self._mine = _regions(host, plan, shuffled, self.rounds)
        self._theirs = {name: _regions(host, alone, shuffled, self.rounds) for name in contest.baselines.ready}
        self._bound: list[Bound] = []
        self._given: list[tuple[Tensor, ...]] = []
        self._covered: dict[int, int] = {}

    def refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
        """New addresses, poison and values for block `number`: for the candidate in all its `rounds`, for a baseline in `shares`
        in the first so many of them."""
        contest, cell, device = self._contest, self._contest.cell, self._host.device
        for regions in (self._mine, *self._theirs.values()):
            self._shuffled.shuffle(regions)
        mine = [draw(cell, subseed(contest.seed, "timed", number, i), device) for i in range(self._values)]
        theirs = [draw(cell, subseed(contest.seed, "baseline", number, i), device) for i in range(self._values)]
        self._given = [mine[(index + number) % len(mine)] for index in range(rounds)]
        for region, values in zip(self._mine, self._given, strict=False):
            region.fill(values, NAN)
        for name, share in shares.items():
            for index, region in enumerate(self._theirs[name][:share]):
                region.fill(theirs[index % len(theirs)], NAN)
        self._bound = [contest.runner.bind(region, contest.choice) for region in self._mine[:rounds]]
        self._covered = {}
        self._host.wait()

    def entry(self, name: str) -> Entry:
        """The candidate as a contestant called `name`, on the memory of the last `refill`."""
        return Entry(name, lambda index: self._bound[index % len(self._bound)].run(self._host.stream()), self._cover)

    def _cover(self, index: int) -> None:
        self._covered[index] = secrets.randbits(62)
        self._mine[index].cover(self._covered[index])

    def arguments(self, name: str, index: int) -> list[Tensor]:
        """The inputs of a baseline in round `index`."""
        region = self._theirs[name][index]
        return [region.tensor(view) for view in region.plan.inputs]

    def check(self) -> None:
        """Every output, guard band and input of the candidate's in the block; raises PlanFault for the first that is wrong.

        One call for each set of values is compared with float64, the others with it, bit by bit.
        """
        contest = self._contest
        for index, seed in self._covered.items():
            self._mine[index].cover(seed)
        self._covered = {}
        first: dict[int, Region] = {}
        flags = []
        regions = list(zip(self._mine, self._given, strict=False))
        for region, values in regions:
            flags += region.touched()
            known = first.setdefault(id(values), region)
            if known is not region and not contest.atomics:
                flags += [differ(left, right) for left, right in zip(outputs_of(region), outputs_of(known), strict=True)]
        if bool(torch.stack(flags).any()):
            self._explain(regions)
        for region, values in regions if contest.atomics else ((first[id(values)], values) for values in self._given[: self._values]):
            result = compare(contest.task, contest.cell, values, tuple(outputs_of(region)), quick=True)
            if result.status != "pass":
                raise PlanFault("timed_output", f"an output of a timed call is wrong: {result.detail}")

    def _explain(self, regions: Sequence[tuple[Region, tuple[Tensor, ...]]]) -> None:
        """Raise PlanFault for what the quick look saw, unless a closer one clears it."""
        first: dict[int, Region] = {}
        for region, values in regions:
            if found := region.explain():
                _, guard, reason = describe(found, region.plan, self._contest.cell)
                raise PlanFault(guard, f"while being timed: {reason}")
            known = first.setdefault(id(values), region)
            pairs = zip(outputs_of(region), outputs_of(known), strict=True)
            if not self._contest.atomics and any(bool(differ(left, right)) for left, right in pairs):
                raise PlanFault("timed_output", "timed calls on the same values gave different outputs")


def _regions(host: Host, plan: LaunchPlan, shuffled: random.Random, count: int) -> list[Region]:
    """Regions that differ in the order of their buffers, cut from one allocation."""
    size = slab_size(plan)
    slab = torch.empty(count * size, dtype=torch.uint8, device=host.device)
    regions = []
    for index in range(count):
        order = list(range(len(plan.buffers)))
        shuffled.shuffle(order)
        part = slab[index * size : (index + 1) * size]
        regions.append(Region(plan, host.device, places=spread(plan, order), step=LARGE_STEP, slab=part))
    return regions


def slab_size(plan: LaunchPlan) -> int:
    """Bytes of a slab in which the plan's buffers fit in any order."""
    aligned = sum(buffer.nbytes + LARGE_STEP + GUARD_BYTES for buffer in plan.buffers)
    return slab_bytes(Layout((), (), -(-aligned // LARGE_STEP) * LARGE_STEP + LARGE_STEP), LARGE_STEP)
