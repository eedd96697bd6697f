"""The memory of a timing block: fresh values at fresh addresses for every contestant and round.

Every contestant has a separate region for each round, so none finds memory that another has warmed.
Buffers lie as torch's allocator would place them (large ones at multiples of 2 MiB), like a user's
tensors. No two calls of the candidate get the same values, and none gets a baseline's values. So a
kernel gains nothing from answers that any kernel left on the device. A call's values are written
just before it, and its outputs must exist when it ends, so no call can do another call's work.

A baseline gets its values, and its outputs are read, in the same way, because a call's time depends
on the device's previous work.

Limits: the values of a call are a mixture of two draws (`mixing`), which lie in memory, as small
operands do. A kernel that searched the device for them could compute an elementwise function of
both once and then only select. That gains where computing takes longer than reading. A kernel that
found the driver's memory, such as event times or code, could change it unseen. Runs in the replay
worker.
"""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.ops.torch_compat import as_tuple
from referee.plans.arena import HUGE, NAN
from referee.replaying.replay import (
    PlanFault,
    Region,
    bands,
    differ,
)
from referee.replaying.replay_check import CANDIDATE_SECONDS, Host, describe, free_bytes, outputs_of
from referee.timing.baselines import Callee
from referee.timing.contest import CHANGED, DRAWS, Contest, Draws, TimedCall, any_true, by_tensor
from referee.timing.fingerprint import DigestBuffer, Noted, fingerprint, fingerprints, read
from referee.timing.mixing import Drawn, Mixed, Values
from referee.timing.rounds import Entry
from referee.timing.stage_layout import mixed_positions, regions_of, slab_size, subseed
from referee.timing.timed_rows import Call, joined, separable_rows

MEMORY_SHARE = 0.3
LEAST_ROUNDS = 3
COMPARED = 8
"""Compared calls of a block, chosen when it has ended, if rows cannot be separated."""


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
        # One more than the rounds, for the repetition of the first timed call.
        self._mine = regions_of(host, plan, shuffled, self.rounds + 1)
        self._theirs = {
            name: regions_of(host, alone, shuffled, self.rounds) for name in contest.baselines.ready
        }
        self._number = 0
        self._drawn: Draws = []
        self._lent: Draws = []
        self._mixed: list[int] = []
        self._taking_turns: list[int] = []
        self._chosen: dict[int, tuple[Values, ...]] = {}
        self._key, self._lent_key = 0, secrets.randbits(63)
        self._lent_given: list[int] = []
        self._room = DigestBuffer(host.device)
        self._given: list[int] = []
        self._ended: dict[int, list[Noted]] = {}
        self._calls: list[TimedCall] = []
        self._spare: TimedCall | None = None
        self._next: list[TimedCall] = []
        self._kept: list[tuple[int, list[Tensor]]] = []

    def refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
        """Sets addresses, fill pattern and values for block `number`.

        The candidate takes part in all `rounds`; a baseline takes part in the first `shares[name]`
        rounds. A call's values are written just before it; until then its memory holds an earlier
        block's content. Data that a kernel made persistent in L2 is cleared.
        """
        self._number = number
        if self._host.driver:
            self._host.driver.reset_persisting_l2()
        self._drawn = [self._draw("timed", number, index) for index in range(DRAWS)]
        if not self._lent:
            # A kernel gains nothing from a baseline's values. They are the same in all blocks and
            # must stay unchanged.
            self._lent = [self._draw("baseline", index) for index in range(DRAWS)]
            self._lent_given = self._noted(self._lent, self._lent_key)
        self._mixed = mixed_positions(self._drawn[0], self._contest.cell)
        self._taking_turns = [
            position for position in range(len(self._drawn[0])) if position not in self._mixed
        ]
        self._chosen = {}
        used = min(rounds, self.rounds)
        if not self._next:
            self.ahead()
        for index, call in enumerate(self._next[: used + 1]):
            drawn = enumerate(self._drawn[index % DRAWS])
            call.region.begin(
                [None if position in self._mixed else operand for position, operand in drawn],
                NAN,
                call.inputs,
            )
        self._calls, self._spare, self._next = self._next[:used], self._next[used], []
        # A candidate could overwrite the draws, or another call's output; a secret key reveals
        # that.
        self._key, self._room = secrets.randbits(63), DigestBuffer(self._host.device)
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
        tensors = contest.task.inputs(
            contest.cell, subseed(contest.seed, *purpose), self._host.device
        )
        return tuple(tensor.contiguous() for tensor in tensors)

    def ahead(self) -> None:
        """Chooses and binds addresses for the next block's calls.

        This is host work for the time when the device is busy; otherwise `refill` does it.
        """
        self._shuffled.shuffle(self._mine)
        self._next = [self._placed(region.moved()) for region in self._mine]

    def _placed(self, region: Region) -> TimedCall:
        inputs = [region.tensor(view) for view in region.plan.inputs]
        return TimedCall(
            region,
            inputs,
            outputs_of(region),
            self._contest.runner.bind(region, self._contest.choice),
        )

    def _values(self, index: int) -> tuple[Values, ...]:
        """The inputs of call `index` of this block: mixed for it, or the draws in turn."""
        if index not in self._chosen:
            first, second = self._drawn
            values: list[Values] = [Drawn(operand) for operand in self._drawn[index % DRAWS]]
            for position in self._mixed:
                seed = subseed(self._contest.seed, "mixed", self._number, index, position)
                values[position] = Mixed(first[position], second[position], seed)
            self._chosen[index] = tuple(values)
        return self._chosen[index]

    def entry(self, name: str) -> Entry:
        """The candidate as the contestant `name`, on the last `refill`'s memory."""
        stream = self._host.stream()
        return Entry(
            name,
            lambda index: self._calls[index % len(self._calls)].bound.run(stream),
            self._begin,
            self._end,
        )

    def _begin(self, index: int) -> None:
        """Writes the mixed values of call `index` for the first time; the draws lie there."""
        index %= len(self._calls)
        self._calls[index].give(self._values(index), self._mixed)

    def _end(self, index: int) -> None:
        index %= len(self._calls)
        self._ended[index] = self._outputs(self._calls[index])

    def _outputs(self, call: TimedCall) -> list[Noted]:
        return [fingerprint(output, self._key, self._room) for output in call.outputs]

    def _noted(self, draws: Draws, key: int) -> list[int]:
        return read(fingerprint(operand, key, self._room) for drawn in draws for operand in drawn)

    def rival(self, name: str, callee: Callee, share: int) -> Entry:
        """A baseline as a contestant in `share` rounds, on the memory of the last `refill`.

        It gets its values (the draws in turn) just before a call, and its outputs are read after
        it, as the candidate's are. A call's time depends on the device's previous work
        (docs/timing-notes.md).
        """
        places = [
            [region.tensor(view) for view in region.plan.inputs]
            for region in self._theirs[name][:share]
        ]
        order = [*self._taking_turns, *self._mixed]
        made: list[object] = []

        def begin(index: int) -> None:
            for position in order:
                places[index % share][position].copy_(self._lent[index % DRAWS][position])

        def call(index: int) -> object:
            made[:] = as_tuple(callee(*places[index % share]))
            return tuple(made)

        def end(index: int) -> None:
            for output in made:
                if isinstance(output, Tensor):
                    fingerprint(output, self._key, self._room)

        return Entry(name, call, begin, end, share)

    def in_place(self, name: str, rounds: int) -> Entry:
        """The candidate as a contestant in its first call's place, with other values in each of
        `rounds` rounds.

        Its memory is reset before each run. The outputs of one randomly chosen run are kept for
        `check_one`.
        """
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
        """Compares the kept outputs, or a random call's, with float64. Raises PlanFault."""
        chosen = secrets.randbelow(len(self._calls))
        for index, outputs in self._kept or [(chosen, self._calls[chosen].outputs)]:
            self._compare(index, outputs)

    def _compare(self, index: int, outputs: Sequence[Tensor]) -> None:
        """Raises PlanFault unless these outputs are right for call `index`."""
        result = compare(
            self._contest.task,
            self._contest.cell,
            [value.made() for value in self._values(index)],
            outputs,
        )
        if result.status != "pass":
            raise PlanFault("timed_output", f"an output of a timed call is wrong: {result.detail}")

    def _compare_all(self) -> None:
        """Raises PlanFault unless rows of every call, chosen now, are right.

        It compares some whole calls if rows cannot be separated.
        """
        task, cell, first = self._contest.task, self._contest.cell, self._calls[0]
        rows = separable_rows(task, first.inputs, first.outputs)
        if not rows:
            for index in random.SystemRandom().sample(
                range(len(self._calls)), min(COMPARED, len(self._calls))
            ):
                self._compare(index, self._calls[index].outputs)
            return
        own = any(first.inputs[position].shape[:1] != (rows,) for position in self._mixed)
        calls = [
            Call(index, call.inputs, call.outputs, index if own else index % DRAWS)
            for index, call in enumerate(self._calls)
        ]
        for some in joined(cell, calls, rows):
            result = compare(task, some.cell, some.inputs, some.outputs)
            if result.status != "pass":
                self._accuse([call.index for call in some.calls], result.detail)

    def _accuse(self, indices: Sequence[int], detail: str) -> None:
        """Raises PlanFault for the first wrong call, by its own row numbers if possible."""
        for index in indices:
            self._compare(index, self._calls[index].outputs)
        for index in indices:
            values = self._values(index)
            if self._mixed and any_true(
                [
                    differ(self._calls[index].inputs[position], values[position].made())
                    for position in self._mixed
                ]
            ):
                raise PlanFault("input_mutated", CHANGED)
        raise PlanFault("timed_output", f"an output of a timed call is wrong: {detail}")

    def check(self) -> None:
        """Checks every output, guard band and input of the candidate in the block. Raises PlanFault
        for the first wrong one.

        Some rows of every call, chosen now, are compared with float64 (with atomics, all rows).
        Every output is compared with that of another untimed call on the same values at another
        address; the fingerprints were taken before that call. The check uses up the block's memory.
        """
        atomics, calls = self._contest.atomics, range(len(self._calls))
        if self._given != self._noted(self._drawn, self._key) or self._lent_given != self._noted(
            self._lent, self._lent_key
        ):
            raise PlanFault(
                "timed_output",
                "while being timed: the kernel wrote over the values that inputs are made of",
            )
        now = self._together([call.outputs for call in self._calls])
        held = self._together([self._mixed_inputs(call) for call in self._calls])
        if by_tensor(self._ended[index] for index in calls) != now:
            raise PlanFault(
                "timed_output", "an output of a timed call was written when the call had ended"
            )
        if self._calls[0].region.has_gaps() or any_true(
            bands(call.region for call in self._calls) + self._changed()
        ):
            self._explain()
        if atomics:
            for index in calls:
                self._compare(index, self._calls[index].outputs)
        else:
            # The repeated call must give the same bits, which covers the other rows.
            self._compare_all()
        self._host.progress("repeating the timed calls", 6 * CANDIDATE_SECONDS, "candidate")
        given, again = self._repeated()
        if held != given:
            raise PlanFault("input_mutated", CHANGED)
        if now != again and not atomics:
            raise PlanFault(
                "timed_output",
                "a timed call and another one on the same values gave different outputs",
            )

    def _changed(self) -> list[Tensor]:
        """Booleans on the device: whether an alternating input differs from the call's values."""
        flags = []
        for position in self._taking_turns:
            given = [self._drawn[index % DRAWS][position] for index in range(len(self._calls))]
            flags.append(
                differ(
                    torch.stack([call.inputs[position] for call in self._calls]), torch.stack(given)
                )
            )
        return flags

    def _mixed_inputs(self, call: TimedCall) -> list[Tensor]:
        return [call.inputs[position] for position in self._mixed]

    def _together(self, tensors: Sequence[Sequence[Tensor]]) -> list[int]:
        """Fingerprints of the calls' first tensors, then of their second ones, and so on."""
        return read(fingerprints(column, self._key) for column in zip(*tensors, strict=True))

    def _repeated(self) -> tuple[list[int], list[int]]:
        """Repeats every call in the place of the previous one.

        Returns fingerprints of its mixed inputs and of its outputs.
        """
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
        """Raises PlanFault for the quick look's finding, unless a closer look clears it."""
        for index, call in enumerate(self._calls):
            call.region.inputs = tuple(value.made() for value in self._values(index))
            found = call.region.explain()
            call.region.inputs = ()
            if found:
                _, guard, reason = describe(found, call.region.plan, self._contest.cell)
                raise PlanFault(guard, f"while being timed: {reason}")
