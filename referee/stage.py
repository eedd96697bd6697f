"""The memory a timing block runs on: fresh values at fresh addresses for every contestant and round.

Every contestant has a region of its own for each round, so none finds memory warmed by another. Buffers lie as torch's allocator
would place them (large ones at multiples of 2 MiB), because that is how a user's tensors lie. No two calls of the candidate get the
same values, and none gets a baseline's: a kernel gains nothing from an answer that it or another kernel left somewhere on the device.
A call's values come to be just before it, and its outputs must be there as it ends, so no call can do another's work either. Runs in
the replay worker.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from referee.arena import GUARD_BYTES, HUGE, LARGE_BYTES, NAN, Layout, Poison, Slot
from referee.baselines import Baselines
from referee.compare import compare
from referee.mixing import mixed
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.values import draw
from referee.plan import LaunchPlan
from referee.replay import Bound, Choice, PlanFault, Region, Runner, checksum, differ, slab_bytes
from referee.replay_check import CANDIDATE_SECONDS, Host, describe, free_bytes, outputs_of
from referee.rounds import Entry

LARGE_STEP, SMALL_STEP = 1 << 21, 512
MEMORY_SHARE = 0.25
LEAST_ROUNDS = 3
DRAWS = 2  # what the values of a block are mixed of, and what its baselines take turns with
COMPARED = 2  # calls of a block, which are chosen when it has ended


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

    def __init__(self, host: Host, contest: Contest, rounds: int) -> None:
        self._host, self._contest = host, contest
        plan = contest.runner.plan
        alone = replace(plan, buffers=plan.buffers[: len(plan.inputs)], steps=(), outputs=())
        shuffled = self._shuffled = random.Random(subseed(contest.seed, "layout"))
        outputs = sum(plan.buffers[view.buffer].nbytes for view in plan.outputs)
        size = slab_size(plan) + len(contest.baselines.ready) * (slab_size(alone) + outputs)
        room = int(MEMORY_SHARE * free_bytes() / size)
        self.rounds = max(LEAST_ROUNDS, min(rounds, room))
        self._mine = _regions(host, plan, shuffled, self.rounds)
        self._theirs = {name: _regions(host, alone, shuffled, self.rounds) for name in contest.baselines.ready}
        self._number = 0
        self._drawn: list[tuple[Tensor, ...]] = []
        self._sums: dict[int, list[Tensor]] = {}
        self._bound: list[Bound] = []

    def refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
        """New addresses, poison and values for block `number`: for the candidate in all its `rounds`, for a baseline in `shares`
        in the first so many of them. What the candidate finds there is one of the draws until its own values come."""
        contest, cell, device = self._contest, self._contest.cell, self._host.device
        for regions in (self._mine, *self._theirs.values()):
            self._shuffled.shuffle(regions)
        self._number = number
        self._drawn = [draw(cell, subseed(contest.seed, "timed", number, index), device) for index in range(DRAWS)]
        theirs = [draw(cell, subseed(contest.seed, "baseline", number, index), device) for index in range(DRAWS)]
        self._bound = [self._placed(index, self._drawn[0], NAN) for index in range(min(rounds, self.rounds))]
        self._sums = {}
        for name, share in shares.items():
            for index, region in enumerate(self._theirs[name][:share]):
                region.fill(theirs[index % DRAWS], NAN)
        self._host.wait()

    def _values(self, index: int) -> tuple[Tensor, ...]:
        """The inputs of call `index` of this block, made anew.

        Large operands are mixed, or all of them where none is large; beside large ones the rest take turns, because mixing every one
        would keep the host busy for longer than the device.
        """
        first, second = self._drawn
        large = [operand.nbytes >= LARGE_BYTES for operand in first]
        values = list(self._drawn[index % DRAWS])
        for position in range(len(values)):
            if large[position] or not any(large):
                seed = subseed(self._contest.seed, "mixed", self._number, index, position)
                values[position] = mixed(first[position], second[position], seed)
        return tuple(values)

    def _placed(self, index: int, values: tuple[Tensor, ...], poison: Poison) -> Bound:
        """The candidate ready for call `index`, its region at a new address and as if it had never run."""
        region = self._mine[index]
        region.fill(values, poison)
        region.inputs = ()
        return self._contest.runner.bind(region, self._contest.choice)

    def entry(self, name: str) -> Entry:
        """The candidate as a contestant called `name`, on the memory of the last `refill`."""
        return Entry(name, lambda index: self._bound[index % len(self._bound)].run(self._host.stream()), self._begin, self._end)

    def _begin(self, index: int) -> None:
        """Write the values of call `index`, which were nowhere on the device before."""
        with self._known(index % len(self._bound)) as region:
            region.change_inputs(region.inputs)

    def _end(self, index: int) -> None:
        """Note what call `index` left as its outputs."""
        self._sums[index % len(self._bound)] = [checksum(output) for output in outputs_of(self._mine[index % len(self._bound)])]

    def arguments(self, name: str, index: int) -> list[Tensor]:
        """The inputs of a baseline in round `index`."""
        region = self._theirs[name][index]
        return [region.tensor(view) for view in region.plan.inputs]

    def check(self) -> None:
        """Every output, guard band and input of the candidate's in the block; raises PlanFault for the first that is wrong.

        Some calls, chosen now, are compared with float64 (with atomics all of them), and every output bit by bit with that of another
        call on the same values, at another address and untimed. Rebinds the calls: the block's outputs are gone.
        """
        contest, calls = self._contest, range(len(self._bound))
        ended = [(then, self._mine[index]) for index, then in self._sums.items()]
        late = [checksum(now) != then for sums, region in ended for then, now in zip(sums, outputs_of(region), strict=True)]
        if late and bool(torch.stack(late).any()):
            raise PlanFault("timed_output", "an output of a timed call was written when the call had ended")
        flags = []
        for index in calls:
            with self._known(index) as region:
                flags += region.touched()
        if bool(torch.stack(flags).any()):
            self._explain()
        for index in calls if contest.atomics else random.SystemRandom().sample(calls, min(COMPARED, len(calls))):
            with self._known(index) as region:
                result = compare(contest.task, contest.cell, region.inputs, tuple(outputs_of(region)), quick=True)
            if result.status != "pass":
                raise PlanFault("timed_output", f"an output of a timed call is wrong: {result.detail}")
        if not contest.atomics:
            self._host.progress("repeating the timed calls", 6 * CANDIDATE_SECONDS, "candidate")
            if bool(torch.stack([flag for index in calls for flag in self._repeated(index)]).any()):
                raise PlanFault("timed_output", "a timed call and another one on the same values gave different outputs")

    @contextmanager
    def _known(self, index: int) -> Iterator[Region]:
        """The region of call `index` while it is known what its inputs must be."""
        region = self._mine[index]
        region.inputs = self._values(index)
        yield region
        region.inputs = ()

    def _repeated(self, index: int) -> list[Tensor]:
        """Booleans on the device: an output of call `index` is not what the same call gives now."""
        timed = [output.clone() for output in outputs_of(self._mine[index])]
        self._bound[index] = self._placed(index, self._values(index), HUGE)
        self._bound[index].run(self._host.stream())
        return [differ(before, now) for before, now in zip(timed, outputs_of(self._mine[index]), strict=True)]

    def _explain(self) -> None:
        """Raise PlanFault for what the quick look saw, unless a closer one clears it."""
        for index in range(len(self._bound)):
            with self._known(index) as region:
                found = region.explain()
            if found:
                _, guard, reason = describe(found, region.plan, self._contest.cell)
                raise PlanFault(guard, f"while being timed: {reason}")


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
