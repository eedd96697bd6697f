"""A duel's timing, how long it lasts and who is blamed when it fails: plans of copies on the CPU.
What only a GPU has is a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from referee import head_to_head
from referee.gpu import duel_worker
from referee.gpu.duel_worker import NOBODY, ImpossibleTime, Match
from referee.gpu.replayer import ReplayerError
from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task
from referee.plans.plan import Buffer, Copy, Fill, LaunchPlan, Step, View
from referee.problem import TaskName
from referee.replaying.replay import PlanFault, Runner
from referee.replaying.replay_check import Host
from referee.timing import floor, stage
from referee.timing.contest import Contest
from referee.timing.floor import Floor
from referee.timing.measurement import TimingOptions
from referee.timing.nvml import Clocks
from referee.timing.rounds import Block, Entry

SPEC = TensorSpec("x", (3, 7), "float16", (7, 1))
CELL = Cell(
    "f16-3x7",
    (SPEC,),
    (TensorSpec("out", SPEC.shape, "float16", SPEC.strides),),
    "normal",
    (1.0,),
    "bench",
)
TASK = Task(
    Op("identity", "function", "test", "identity", "x", "familiar", origin="user"),
    (CELL,),
    torch.clone,
    torch.Tensor.double,
)
INPUT, OUTPUT = (View(buffer, 0, SPEC.shape, SPEC.strides, "float16") for buffer in range(2))
CATALOGUE_TASK = replace(TASK, op=replace(TASK.op, kind="unary", origin="catalogue"))
RIGHT, WRONG = (Copy(OUTPUT, INPUT),), (Fill(OUTPUT, 7.0),)

SHORT = TimingOptions(rounds=4, least_rounds=8, most_rounds=8)
SLOW_CHAMPION = {"champion": 1.5}


class NoStream(Host):
    def stream(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "free_bytes", lambda: 4 << 30)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1)
    )
    monkeypatch.setattr(Clocks, "open", lambda _: "no clocks here")
    monkeypatch.setattr(duel_worker, "Flush", lambda size: None)
    monkeypatch.setattr(floor, "rated_bandwidth", lambda driver: None)
    monkeypatch.setattr(floor, "Floor", lambda *_: SimpleNamespace(call=lambda index: None))


def runner(steps: Sequence[Step]) -> Runner:
    return Runner(
        LaunchPlan((Buffer(42, 0), Buffer(42)), (INPUT,), tuple(steps), (OUTPUT,)), {}, None
    )


def host() -> Host:
    driver = cast(
        "Any",
        SimpleNamespace(
            reset_persisting_l2=lambda: None, synchronize=lambda: None, pci_bus_id=lambda: ""
        ),
    )
    return NoStream("cpu", driver, lambda *_: None)


def match(
    challenger: Sequence[Step],
    champion: Sequence[Step],
    options: TimingOptions = SHORT,
    task: Task = TASK,
) -> Match:
    sides = (("challenger", challenger), ("champion", champion))
    contests = {
        side: Contest(
            task=task,
            cell=CELL,
            runner=runner(steps),
            choice={},
            atomics=False,
            baselines=NOBODY,
            seed=5,
        )
        for side, steps in sides
    }
    return Match(host(), contests, options)


def played(
    monkeypatch: pytest.MonkeyPatch,
    *,
    crash_in: int = 0,
    us: float = 1.0,
    times: Mapping[str, float] = SLOW_CHAMPION,
) -> list[int]:
    """Rounds of calls that take `us`, or `times` that by name; in block `crash_in` one fails. Gives
    every block's rounds.
    """
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
        return Block(
            {entry.name: np.full(rounds, us * times.get(entry.name, 1.0)) for entry in entries}, 0
        )

    monkeypatch.setattr(duel_worker, "run_block", run)
    return blocks


def answered(
    monkeypatch: pytest.MonkeyPatch, jobs: Sequence[Sequence[Step]], task: Task
) -> dict[str, Any]:
    """What the worker's process answers to a request."""
    monkeypatch.setattr(
        duel_worker,
        "unpack_jobs",
        lambda *_: [SimpleNamespace(cell=CELL, steps=steps) for steps in jobs],
    )
    monkeypatch.setattr(duel_worker, "Loaded", lambda _, job: nullcontext(runner(job.steps)))
    monkeypatch.setattr(duel_worker, "load", lambda *_: task)
    sides: list[dict[str, Any]] = [
        {"name": name, "choice": {}, "atomics": False} for name in ("challenger", "champion")
    ]
    message = {
        "sides": sides,
        "jobs": [],
        "task": asdict(TaskName(task.op.name)),
        "seed": 5,
        "options": asdict(SHORT),
    }
    return duel_worker.answer(host(), message, [])


def fought(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], failure: type[Exception]) -> Any:
    """What a duel of two kernels that pass the referee raises where the worker's process answers
    with `found`.
    """
    passed = SimpleNamespace(bench=(), task=SHORT, choice={}, atomics=False, rejection=None)
    replayer = SimpleNamespace(environment=dict, check=lambda *_, **__: passed)
    process = SimpleNamespace(request=lambda *_, **__: found, close=lambda: None)
    for name, made in (
        ("Workers", nullcontext()),
        ("Replayer", nullcontext(replayer)),
        ("WorkerProcess", process),
    ):
        monkeypatch.setattr(head_to_head, name, lambda *_, made=made, **__: made)
    monkeypatch.setattr(head_to_head, "pack_jobs", lambda jobs: ([], []))
    monkeypatch.setattr(head_to_head, "compile_candidate", lambda *_: passed)
    monkeypatch.setattr(head_to_head, "choose_autotune_config", lambda *_, **__: passed)
    with pytest.raises(failure) as raised:
        head_to_head.time_head_to_head("", "", "softmax", options=SHORT)
    return raised.value


def test_a_wrong_output_is_blamed_on_the_side_that_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch)
    for sides, whose in (((RIGHT, WRONG), "champion"), ((WRONG, RIGHT), "challenger")):
        made = match(*sides)
        with pytest.raises(PlanFault, match="wrong"):
            made.measure()
        assert made.failing == whose


def test_first_calls_have_values_and_l2_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[int] = []
    called: list[bool] = []
    blocks = played(monkeypatch)
    made = match(RIGHT, RIGHT)
    assert made._host.driver
    monkeypatch.setattr(
        made._host.driver, "reset_persisting_l2", lambda: resets.append(len(blocks))
    )

    def timed(_: Host, call: Callable[[], object]) -> float:
        call()
        called.extend(
            bool(call.outputs[0].isfinite().all())
            for stage in made._stages.values()
            for call in stage._calls[:1]
        )
        return 1.0

    monkeypatch.setattr(duel_worker, "call_us", timed)
    made.measure()
    assert called[0] and called[-1], "a copy of what nobody wrote is no number"
    assert set(resets) == set(range(len(blocks))) and all(
        resets.count(number) >= 2 for number in set(resets)
    )


@pytest.mark.parametrize(
    ("vandal", "victim"), [("challenger", "champion"), ("champion", "challenger")]
)
def test_a_side_that_writes_into_the_others_memory_is_blamed(
    monkeypatch: pytest.MonkeyPatch, vandal: str, victim: str
) -> None:
    blocks = played(monkeypatch)
    made = match(RIGHT, RIGHT)
    harmed, harming = made._stages[victim], made._stages[vandal]
    honest = harming.entry

    def entry(name: str) -> Entry:
        def call(index: int) -> None:
            honest(name).call(index)
            for region in [theirs.region for theirs in harmed._calls[index : index + 1]]:
                region.bytes[slice(*region.places.guards[-1])].zero_()

        return replace(honest(name), call=call)

    monkeypatch.setattr(harming, "entry", entry)
    with pytest.raises(
        PlanFault, match=f"together with this kernel, and not without it, the {victim} goes wrong: "
    ):
        made.measure()
    assert made.failing == vandal
    assert len(blocks) == 3


@pytest.mark.parametrize("side", ["challenger", "champion"])
def test_a_kernel_that_goes_wrong_once_wins_nothing(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """That the other one gets the blame cannot be told from one that did it."""
    played(monkeypatch)
    checks: list[str] = []
    honest = stage.Stage.check

    def check(self: stage.Stage) -> None:
        honest(self)
        if self is made._stages[side]:
            checks.append(side)
            if len(checks) == 1:
                raise PlanFault("timed_output", "a race was lost")

    monkeypatch.setattr(stage.Stage, "check", check)
    made = match(RIGHT, RIGHT)
    with pytest.raises(PlanFault, match=f"the {side} goes wrong: a race was lost"):
        made.measure()
    assert made.failing != side
    assert len(checks) == 2


@pytest.mark.parametrize("whose", ["challenger", "champion"])
def test_whoever_is_refused_there_is_no_result(
    monkeypatch: pytest.MonkeyPatch, whose: head_to_head.Side
) -> None:
    steps = {"challenger": RIGHT, "champion": RIGHT} | {whose: WRONG}
    played(monkeypatch)
    found = answered(monkeypatch, list(steps.values()), TASK)
    assert found["whose"] == whose
    assert set(found) == {"rejection", "whose"}
    refused = fought(monkeypatch, found, head_to_head.HeadToHeadRefused)
    assert refused.whose == whose
    assert f"the {whose} does not pass: an output of a timed call is wrong" in str(refused)


@pytest.mark.parametrize("side", ["challenger", "champion"])
def test_a_side_that_lost_the_device_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    blocks = played(monkeypatch)
    made = match(RIGHT, RIGHT)

    def check() -> None:
        raise PlanFault("kernel_error", "the GPU stopped the kernel", sticky=True)

    monkeypatch.setattr(made._stages[side], "check", check)
    with pytest.raises(PlanFault, match="^the GPU stopped the kernel$"):
        made.measure()
    assert made.failing == side
    assert len(blocks) == 2


def test_a_later_crash_is_not_blamed_on_a_checked_side(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, crash_in=3)
    made = match(RIGHT, RIGHT)
    with pytest.raises(PlanFault, match="stopped"):
        made.measure()
    assert made.failing is None


def test_a_win_in_a_duel_needs_its_rounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch)
    found = match(RIGHT, RIGHT, SHORT).measure()
    assert (found["decision"], found["reason"]) == ("win", "")
    found = match(RIGHT, RIGHT, TimingOptions(4, least_rounds=9, most_rounds=8)).measure()
    assert (found["decision"], found["reason"]) == (
        "unsure",
        "faster, but measuring ended after 8 usable rounds of the 9 that are wanted",
    )


@pytest.mark.parametrize(
    ("us", "rounds", "expected"), [(50_000.0, 12, [3, 3, 3, 3, 3]), (1.0, 16, [3, 4, 4, 4, 4])]
)
def test_slow_kernels_duel_in_few_rounds(
    monkeypatch: pytest.MonkeyPatch, us: float, rounds: int, expected: list[int]
) -> None:
    blocks = played(monkeypatch, us=us)
    monkeypatch.setattr(duel_worker, "call_us", lambda *_: 50_000.0)
    found = match(RIGHT, RIGHT, TimingOptions(4, least_rounds=16, most_rounds=16)).measure()
    assert (found["decision"], found["ratio"]["rounds"], blocks) == ("win", rounds, expected)


@pytest.fixture
def real_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "stream", lambda read, written: lambda index: None)
    monkeypatch.setattr(floor, "Floor", Floor)


@pytest.mark.usefixtures("real_floor")
@pytest.mark.parametrize("side", ["challenger", "champion"])
def test_a_time_that_cannot_be_true_is_an_error_and_no_result(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    played(monkeypatch, us=30.0, times={side: 0.5})
    reason = (
        f"the {side}'s time cannot be true: the kernel took 15.0 us, "
        "and moving the same bytes takes 30.0 us: not a record but an error"
    )
    with pytest.raises(ImpossibleTime, match=f"^{reason}$"):
        match(RIGHT, RIGHT, task=CATALOGUE_TASK).measure()
    found = answered(monkeypatch, (RIGHT, RIGHT), CATALOGUE_TASK)
    assert found == {"broken": reason}
    assert str(fought(monkeypatch, found, ReplayerError)) == f"the duel failed: {reason}"


@pytest.mark.usefixtures("real_floor")
def test_two_impossible_times_are_no_excuse_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, us=30.0, times={"challenger": 0.5, "champion": 0.5})
    with pytest.raises(ImpossibleTime):
        match(RIGHT, RIGHT, task=CATALOGUE_TASK).measure()


@pytest.mark.usefixtures("real_floor")
@pytest.mark.parametrize(
    ("task", "us", "share"),
    [(CATALOGUE_TASK, 30.0, 0.95), (CATALOGUE_TASK, 1.0, 0.5), (TASK, 30.0, 0.5)],
    ids=["at the speed of memory", "short", "a user's reference"],
)
def test_a_time_that_can_be_true_is_a_result(
    monkeypatch: pytest.MonkeyPatch, task: Task, us: float, share: float
) -> None:
    played(monkeypatch, us=us, times={"challenger": share})
    assert match(RIGHT, RIGHT, task=task).measure()["decision"] == "win"


@pytest.mark.usefixtures("real_floor")
def test_without_a_traffic_time_nothing_counts_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, us=30.0, times={"challenger": 0.5, "floor": np.nan})
    assert match(RIGHT, RIGHT, task=CATALOGUE_TASK).measure()["decision"] == "win"
