"""A duel's timing, how long it lasts and who is blamed when it fails: plans of copies on the CPU. What only a GPU has is a stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from referee import duel_worker, floor, stage
from referee.clocks import Clocks
from referee.duel_worker import NOBODY, Match
from referee.measurement import TimingOptions
from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task
from referee.plan import Buffer, Copy, Fill, LaunchPlan, Step, View
from referee.replay import PlanFault, Runner
from referee.replay_check import Host
from referee.rounds import Block, Entry
from referee.stage import Contest

SPEC = TensorSpec("x", (3, 7), "float16", (7, 1))
CELL = Cell("f16-3x7", (SPEC,), (TensorSpec("out", SPEC.shape, "float16", SPEC.strides),), "normal", (1.0,), "bench")
TASK = Task(Op("identity", "unary", "test", "identity", "x", "familiar", origin="user"), (CELL,), torch.clone, torch.Tensor.double)
INPUT, OUTPUT = (View(buffer, 0, SPEC.shape, SPEC.strides, "float16") for buffer in range(2))
RIGHT, WRONG = (Copy(OUTPUT, INPUT),), (Fill(OUTPUT, 7.0),)

SHORT = TimingOptions(rounds=4)


class NoStream(Host):
    def stream(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "free_bytes", lambda: 4 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1))
    monkeypatch.setattr(Clocks, "open", lambda _: "no clocks here")
    monkeypatch.setattr(duel_worker, "Flush", lambda size: None)
    monkeypatch.setattr(floor, "rated_bandwidth", lambda driver: None)
    monkeypatch.setattr(floor, "Floor", lambda *_: SimpleNamespace(call=lambda index: None))


def match(challenger: Sequence[Step], champion: Sequence[Step], options: TimingOptions = SHORT) -> Match:
    driver = cast("Any", SimpleNamespace(reset_persisting_l2=lambda: None, synchronize=lambda: None, pci_bus_id=lambda: ""))
    contests = {}
    for side, steps in (("challenger", challenger), ("champion", champion)):
        plan = LaunchPlan((Buffer(42, 0), Buffer(42)), (INPUT,), tuple(steps), (OUTPUT,))
        contests[side] = Contest(TASK, CELL, Runner(plan, {}, None), {}, False, NOBODY, 5)
    return Match(NoStream("cpu", driver, lambda *_: None), contests, options)


def played(monkeypatch: pytest.MonkeyPatch, *, crash_in: int = 0, us: float = 1.0) -> list[int]:
    """Rounds of calls that take `us`, the champion's half as long again; in block `crash_in` one fails. Gives every block's rounds."""
    blocks: list[int] = []

    def run(entries: Sequence[Entry], rounds: int, *_: object, **__: object) -> Block:
        blocks.append(rounds)
        if len(blocks) == crash_in:
            raise PlanFault("kernel_error", "the GPU stopped the kernel", sticky=True)
        for entry in entries:
            for number in range(rounds):
                for step in (entry.before, entry.call, entry.after):
                    if step:
                        step(number)
        return Block({entry.name: np.full(rounds, us * (1.5 if entry.name == "champion" else 1.0)) for entry in entries}, 0)

    monkeypatch.setattr(duel_worker, "run_block", run)
    return blocks


def test_a_wrong_output_is_blamed_on_the_side_that_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch)
    for sides, whose in (((RIGHT, WRONG), "champion"), ((WRONG, RIGHT), "challenger")):
        made = match(*sides)
        with pytest.raises(PlanFault, match="wrong"):
            made.measure()
        assert made.failing == whose


def test_a_challenger_that_writes_into_the_champions_memory_is_blamed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = played(monkeypatch)
    made = match(RIGHT, RIGHT)
    champion, challenger = made._stages["champion"], made._stages["challenger"]
    honest = challenger.entry

    def entry(name: str) -> Entry:
        def call(index: int) -> None:
            honest(name).call(index)
            for region in [theirs.region for theirs in champion._calls[index : index + 1]]:
                region.bytes[slice(*region.places.guards[-1])].zero_()

        return replace(honest(name), call=call)

    monkeypatch.setattr(challenger, "entry", entry)
    with pytest.raises(PlanFault, match="beside this kernel, and not without it, the champion goes wrong: "):
        made.measure()
    assert made.failing == "challenger"
    assert len(blocks) == 3


def test_a_crash_in_a_later_block_is_not_blamed_on_the_side_that_was_checked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, crash_in=3)
    made = match(RIGHT, RIGHT)
    with pytest.raises(PlanFault, match="stopped"):
        made.measure()
    assert made.failing is None


def test_a_win_in_a_duel_needs_its_rounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch)
    found = match(RIGHT, RIGHT, TimingOptions(4, least_rounds=8, most_rounds=8)).measure()
    assert (found["decision"], found["reason"]) == ("win", "")
    found = match(RIGHT, RIGHT, TimingOptions(4, least_rounds=9, most_rounds=8)).measure()
    assert (found["decision"], found["reason"]) == ("unsure", "faster, but measuring ended after 8 usable rounds of the 9 that are wanted")


@pytest.mark.parametrize(("us", "rounds", "expected"), [(50_000.0, 12, [3, 3, 3, 3, 3]), (1.0, 16, [3, 4, 4, 4, 4])])
def test_slow_kernels_duel_in_few_rounds_and_those_that_are_slow_at_first_in_all(
    monkeypatch: pytest.MonkeyPatch, us: float, rounds: int, expected: list[int]
) -> None:
    blocks = played(monkeypatch, us=us)
    monkeypatch.setattr(duel_worker, "call_us", lambda *_: 50_000.0)
    found = match(RIGHT, RIGHT, TimingOptions(4, least_rounds=16, most_rounds=16)).measure()
    assert (found["decision"], found["ratio"]["rounds"], blocks) == ("win", rounds, expected)
