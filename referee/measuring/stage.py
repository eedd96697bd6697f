"""The memory a timing block runs on: fresh values at fresh addresses for every contestant and round.

Every contestant has a region of its own for each round, so none finds memory warmed by another. Buffers lie as torch's allocator
would place them (large ones at multiples of 2 MiB), because that is how a user's tensors lie. No two calls of the candidate get the
same values, and none gets a baseline's: a kernel gains nothing from an answer that it or another kernel left somewhere on the device.
A call's values come to be just before it, and its outputs must be there as it ends, so no call can do another's work either.

A baseline is given its values and has its outputs read in the same way, because a call's time shows what the device did before it.

Limits: the values of a call are a mixture of two draws (`mixing.py`), which lie in memory, and so do small operands. A kernel that
searched the device for them could work out an elementwise function of both once and then only choose; that gains where computing
takes longer than reading. One that found the driver's own memory, such as the times of events, or code, could change these: nothing
here would tell. Runs in the replay worker.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.measuring.baselines import Baselines, Callee
from referee.measuring.baselines import outputs_of as returned_by
from referee.measuring.fingerprint import Noted, Room, fingerprint, fingerprints, read
from referee.measuring.mixing import Drawn, Mixed, Values
from referee.measuring.rounds import Entry
from referee.measuring.timed_rows import Call, joined, separable_rows
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.plans.arena import GUARD_BYTES, HUGE, LARGE_BYTES, NAN, Layout, Slot
from referee.plans.plan import LaunchPlan
from referee.replaying.replay import Bound, Choice, PlanFault, Region, Runner, bands, differ, slab_bytes
from referee.replaying.replay_check import CANDIDATE_SECONDS, Host, describe, free_bytes, outputs_of

LARGE_STEP, SMALL_STEP = 1 << 21, 512
MEMORY_SHARE = 0.3
LEAST_ROUNDS = 3
DRAWS = 2  # what the values of a block are mixed of, and what baselines take turns with
Draws = Sequence[tuple[Tensor, ...]]
COMPARED = 8  # calls of a block, chosen when it has ended, where there are no rows of all of them to look at
CHANGED = "while being timed: the kernel changed an input: write only to new tensors, and within their bounds"


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


def mixed_positions(operands: Sequence[Tensor]) -> list[int]:
    """Which operands are mixed for every call; the draws take turns as the others."""
    large = [operand.nbytes >= LARGE_BYTES for operand in operands]
    # Mixing small operands beside large ones would keep the host busy for longer than the device.
    return [position for position, is_large in enumerate(large) if is_large or not any(large)]


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


@dataclass(frozen=True)
class _Call:
    """One of the candidate's calls: its region, the tensors in it, and what is to be launched."""

    region: Region
    inputs: list[Tensor]
    outputs: list[Tensor]
    bound: Bound

    def give(self, values: Sequence[Values], positions: Iterable[int]) -> None:
        """Write the inputs with these numbers."""
        for position in positions:
            values[position].write(self.inputs[position])


class Stage:
    """Regions for `rounds` rounds. `refill` before a block, `check` after it."""

    def __init__(self, host: Host, contest: Contest, rounds: int) -> None:
        self._host, self._contest = host, contest
        plan = contest.runner.plan
        alone = replace(plan, buffers=plan.buffers[: len(plan.inputs)], steps=(), outputs=())
        shuffled = self._shuffled = random.Random(subseed(contest.seed, "layout"))
        outputs = sum(plan.buffers[view.buffer].nbytes for view in plan.outputs)
        size = slab_size(plan) + len(contest.baselines.ready) * (slab_size(alone) + outputs)
        room = int(MEMORY_SHARE * free_bytes() / size) - 1
        self.rounds = max(LEAST_ROUNDS, min(rounds, room))
        # One more than there are rounds: where the first of the timed calls is repeated.
        self._mine = _regions(host, plan, shuffled, self.rounds + 1)
        self._theirs = {name: _regions(host, alone, shuffled, self.rounds) for name in contest.baselines.ready}
        self._number = 0
        self._drawn: Draws = []
        self._lent: Draws = []
        self._mixed: list[int] = []
        self._taking_turns: list[int] = []
        self._chosen: dict[int, tuple[Values, ...]] = {}
        self._key, self._lent_key = 0, secrets.randbits(63)
        self._lent_given: list[int] = []
        self._room = Room(host.device)
        self._given: list[int] = []
        self._ended: dict[int, list[Noted]] = {}
        self._calls: list[_Call] = []
        self._spare: _Call | None = None
        self._next: list[_Call] = []
        self._kept: list[tuple[int, list[Tensor]]] = []

    def refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
        """New addresses, poison and values for block `number`: for the candidate in all its `rounds`, for a baseline in `shares`
        in the first so many of them. Their values come just before a call; until then there lies what an earlier block left.
        Nothing that a kernel asked L2 to keep stays there."""
        self._number = number
        if self._host.driver:
            self._host.driver.reset_persisting_l2()
        self._drawn = [self._draw("timed", number, index) for index in range(DRAWS)]
        if not self._lent:
            # Nobody gains from knowing what a baseline is given. It is the same in all blocks, so it must be in the end what it was here.
            self._lent = [self._draw("baseline", index) for index in range(DRAWS)]
            self._lent_given = self._noted(self._lent, self._lent_key)
        self._mixed = mixed_positions(self._drawn[0])
        self._taking_turns = [position for position in range(len(self._drawn[0])) if position not in self._mixed]
        self._chosen = {}
        used = min(rounds, self.rounds)
        if not self._next:
            self.ahead()
        for index, call in enumerate(self._next[: used + 1]):
            drawn = enumerate(self._drawn[index % DRAWS])
            call.region.begin([None if position in self._mixed else operand for position, operand in drawn], NAN, call.inputs)
        self._calls, self._spare, self._next = self._next[:used], self._next[used], []
        # A candidate could write over the draws, or over an output that another call left: what nobody else knows tells.
        self._key, self._room = secrets.randbits(63), Room(self._host.device)
        self._ended = {}
        self._kept = []
        self._given = self._noted(self._drawn, self._key)
        for name, share in shares.items():
            self._shuffled.shuffle(self._theirs[name])
            for region in self._theirs[name][:share]:
                region.move()
        self._host.wait()

    def _draw(self, *purpose: object) -> tuple[Tensor, ...]:
        contest = self._contest
        tensors = contest.task.inputs(contest.cell, subseed(contest.seed, *purpose), self._host.device)
        return tuple(tensor.contiguous() for tensor in tensors)

    def ahead(self) -> None:
        """Choose addresses for the calls of the next block and bind them. That is work of the host alone, for while the device is busy;
        `refill` does it otherwise."""
        self._shuffled.shuffle(self._mine)
        self._next = [self._placed(region.moved()) for region in self._mine]

    def _placed(self, region: Region) -> _Call:
        inputs = [region.tensor(view) for view in region.plan.inputs]
        return _Call(region, inputs, outputs_of(region), self._contest.runner.bind(region, self._contest.choice))

    def _values(self, index: int) -> tuple[Values, ...]:
        """The inputs of the candidate's call `index` of this block: mixed for it alone, or the draws in turn."""
        if index not in self._chosen:
            first, second = self._drawn
            values: list[Values] = [Drawn(operand) for operand in self._drawn[index % DRAWS]]
            for position in self._mixed:
                seed = subseed(self._contest.seed, "mixed", self._number, index, position)
                values[position] = Mixed(first[position], second[position], seed)
            self._chosen[index] = tuple(values)
        return self._chosen[index]

    def entry(self, name: str) -> Entry:
        """The candidate as a contestant called `name`, on the memory of the last `refill` and the stream of now."""
        stream = self._host.stream()
        return Entry(name, lambda index: self._calls[index % len(self._calls)].bound.run(stream), self._begin, self._end)

    def _begin(self, index: int) -> None:
        """Write the values of call `index`, which were nowhere on the device before; what takes turns lies there already."""
        index %= len(self._calls)
        self._calls[index].give(self._values(index), self._mixed)

    def _end(self, index: int) -> None:
        """Note what call `index` left as its outputs."""
        index %= len(self._calls)
        self._ended[index] = self._outputs(self._calls[index])

    def _outputs(self, call: _Call) -> list[Noted]:
        return [fingerprint(output, self._key, self._room) for output in call.outputs]

    def _noted(self, draws: Draws, key: int) -> list[int]:
        return read(fingerprint(operand, key, self._room) for drawn in draws for operand in drawn)

    def rival(self, name: str, callee: Callee, share: int) -> Entry:
        """A baseline as a contestant in `share` rounds, on the memory of the last `refill`.

        It is given its values, draws in turn, just before a call, and its outputs are read after it, as the candidate's are: what the
        device did last is seen in a call's time (`bench/twin_sizes.py`).
        """
        places = [[region.tensor(view) for view in region.plan.inputs] for region in self._theirs[name][:share]]
        order = [*self._taking_turns, *self._mixed]
        made: list[object] = []

        def begin(index: int) -> None:
            for position in order:
                places[index % share][position].copy_(self._lent[index % DRAWS][position])

        def call(index: int) -> object:
            made[:] = returned_by(callee(*places[index % share]))
            return tuple(made)

        def end(index: int) -> None:
            for output in made:
                if isinstance(output, Tensor):
                    fingerprint(output, self._key, self._room)

        return Entry(name, call, begin, end, share)

    def in_place(self, name: str, rounds: int) -> Entry:
        """The candidate as a contestant that runs where its first call is, each of `rounds` times on other values and as if it had never
        run. What it gives at one of them, which is chosen now, is kept for `check_one`."""
        call, chosen = self._calls[0], secrets.randbelow(rounds)
        begun, ended = itertools.count(), itertools.count()

        def begin(_: int) -> None:
            call.region.forget(HUGE)
            call.give(self._values(next(begun)), range(len(call.inputs)))

        def end(_: int) -> None:
            if next(ended) == chosen:
                self._kept.append((chosen, [output.clone() for output in call.outputs]))

        return Entry(name, lambda _: call.bound.run(self._host.stream()), begin, end)

    def check_one(self) -> None:
        """Compare what was kept, or else one of the calls, with float64; raises PlanFault where it is wrong."""
        chosen = secrets.randbelow(len(self._calls))
        for index, outputs in self._kept or [(chosen, self._calls[chosen].outputs)]:
            self._compare(index, outputs)

    def _compare(self, index: int, outputs: Sequence[Tensor]) -> None:
        """Raise PlanFault unless these are right for call `index`."""
        result = compare(self._contest.task, self._contest.cell, [value.made() for value in self._values(index)], outputs)
        if result.status != "pass":
            raise PlanFault("timed_output", f"an output of a timed call is wrong: {result.detail}")

    def _compare_all(self) -> None:
        """Raise PlanFault unless rows of every call that are chosen now are right, or all of some calls where rows cannot be chosen."""
        task, cell, first = self._contest.task, self._contest.cell, self._calls[0]
        rows = separable_rows(task, first.inputs, first.outputs)
        if not rows:
            for index in random.SystemRandom().sample(range(len(self._calls)), min(COMPARED, len(self._calls))):
                self._compare(index, self._calls[index].outputs)
            return
        own = any(first.inputs[position].shape[:1] != (rows,) for position in self._mixed)
        calls = [Call(index, call.inputs, call.outputs, index if own else index % DRAWS) for index, call in enumerate(self._calls)]
        for some in joined(cell, calls, rows):
            result = compare(task, some.cell, some.inputs, some.outputs)
            if result.status != "pass":
                self._accuse([call.index for call in some.calls], result.detail)

    def _accuse(self, indices: Sequence[int], detail: str) -> None:
        """Raise PlanFault for the first of these calls that is wrong. Only a look at the whole call numbers its rows as the user does."""
        for index in indices:
            self._compare(index, self._calls[index].outputs)
        for index in indices:
            values = self._values(index)
            if _any([differ(self._calls[index].inputs[position], values[position].made()) for position in self._mixed]):
                raise PlanFault("input_mutated", CHANGED)
        raise PlanFault("timed_output", f"an output of a timed call is wrong: {detail}")

    def check(self) -> None:
        """Every output, guard band and input of the candidate's in the block, whose memory is used up by it; raises PlanFault for the
        first that is wrong.

        Some rows of every call, chosen now, are compared with float64 (with atomics all of them), and every output with that of another
        call on the same values, at another address and untimed. Whatever that call does, what it is compared with was noted before it.
        """
        atomics, calls = self._contest.atomics, range(len(self._calls))
        if self._given != self._noted(self._drawn, self._key) or self._lent_given != self._noted(self._lent, self._lent_key):
            raise PlanFault("timed_output", "while being timed: the kernel wrote over the values that inputs are made of")
        now = self._together([call.outputs for call in self._calls])
        held = self._together([self._mixed_inputs(call) for call in self._calls])
        if _by_tensor(self._ended[index] for index in calls) != now:
            raise PlanFault("timed_output", "an output of a timed call was written when the call had ended")
        if self._calls[0].region.has_gaps() or _any(bands(call.region for call in self._calls) + self._changed()):
            self._explain()
        if atomics:
            for index in calls:
                self._compare(index, self._calls[index].outputs)
        else:
            # What a call wrote to other rows is known from the one that repeats it, which has to be the same.
            self._compare_all()
        self._host.progress("repeating the timed calls", 6 * CANDIDATE_SECONDS, "candidate")
        given, again = self._repeated()
        if held != given:
            raise PlanFault("input_mutated", CHANGED)
        if now != again and not atomics:
            raise PlanFault("timed_output", "a timed call and another one on the same values gave different outputs")

    def _changed(self) -> list[Tensor]:
        """Booleans on the device: an input that takes turns is not what some call was given."""
        flags = []
        for position in self._taking_turns:
            given = [self._drawn[index % DRAWS][position] for index in range(len(self._calls))]
            flags.append(differ(torch.stack([call.inputs[position] for call in self._calls]), torch.stack(given)))
        return flags

    def _mixed_inputs(self, call: _Call) -> list[Tensor]:
        return [call.inputs[position] for position in self._mixed]

    def _together(self, tensors: Sequence[Sequence[Tensor]]) -> list[int]:
        """Fingerprints of the calls' first tensors, then of their second ones, and so on: those of one number are taken at once."""
        return read(fingerprints(column, self._key) for column in zip(*tensors, strict=True))

    def _repeated(self) -> tuple[list[int], list[int]]:
        """Do every call once more, where the one before it was: fingerprints of the mixed inputs that each is given, and of what it
        gives."""
        assert self._spare
        repeats = [self._spare, *self._calls[:-1]]
        for index, call in enumerate(repeats):
            call.region.forget(HUGE)
            call.give(self._values(index), range(len(call.inputs)))
        given = self._together([self._mixed_inputs(call) for call in repeats])
        stream = self._host.stream()
        for call in repeats:
            call.bound.run(stream)
        return given, self._together([call.outputs for call in repeats])

    def _explain(self) -> None:
        """Raise PlanFault for what the quick look saw, unless a closer one clears it."""
        for index, call in enumerate(self._calls):
            call.region.inputs = tuple(value.made() for value in self._values(index))
            found = call.region.explain()
            call.region.inputs = ()
            if found:
                _, guard, reason = describe(found, call.region.plan, self._contest.cell)
                raise PlanFault(guard, f"while being timed: {reason}")


def _by_tensor(noted: Iterable[Sequence[Noted]]) -> list[int]:
    """What was noted of each call's tensors, as the fingerprints of the first ones, then of the second ones, and so on."""
    return read(one for column in zip(*noted, strict=True) for one in column)


def _any(flags: list[Tensor]) -> bool:
    """Whether one of the booleans on the device is true. Waits for it."""
    return bool(flags) and bool(torch.stack(flags).any())


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
