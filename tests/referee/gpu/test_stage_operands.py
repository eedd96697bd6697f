"""What the memory of a timing block holds where an operation has a large operand and a small one.
On the CPU and on a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task
from referee.plans.arena import LARGE_BYTES
from referee.plans.plan import Buffer, Copy, LaunchPlan, View
from referee.plans.plan_check import input_nbytes, input_view
from referee.replaying.driver import Driver
from referee.replaying.replay import PlanFault, Runner
from referee.replaying.replay_check import Host
from referee.timing import stage as stage_module
from referee.timing.baselines import Baselines
from referee.timing.contest import Contest
from referee.timing.stage import Stage

ROUNDS, COLUMNS = 4, 64
GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])


def staged(
    device: str,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
    strides: tuple[int, int] = (COLUMNS, 1),
    offset: int = 0,
) -> Stage:
    """A stage for a plan that copies x [rows, 64], which lies as told, and w [64] to its two
    outputs, filled for its first block.
    """
    if device == "cpu":
        monkeypatch.setattr(stage_module, "free_bytes", lambda: 40 << 30)
    x, w = (
        TensorSpec("x", (rows, COLUMNS), "float16", (COLUMNS, 1)),
        TensorSpec("w", (COLUMNS,), "float16", (1,)),
    )
    laid = replace(x, strides=strides, offset=offset)
    cell = Cell(
        "f16",
        (laid, w),
        (replace(x, name="first"), replace(w, name="second")),
        "normal",
        (1.0, 1.0),
        "bench",
    )
    op = Op("both", "unary", "test", "both", "x, w", "familiar", origin="user")
    task = Task(
        op, (cell,), lambda x, w: (x.clone(), w.clone()), lambda x, w: (x.double(), w.double())
    )
    read, written = (
        [View(first + at, 0, one.shape, one.strides, "float16") for at, one in enumerate((x, w))]
        for first in (0, 2)
    )
    read[0] = input_view(0, laid)
    size = 2 * rows * COLUMNS
    buffers = (
        Buffer(input_nbytes(laid), 0),
        Buffer(2 * COLUMNS, 1),
        Buffer(size),
        Buffer(2 * COLUMNS),
    )
    steps = tuple(Copy(target, source) for target, source in zip(written, read, strict=True))
    plan = LaunchPlan(buffers, tuple(read), steps, tuple(written))
    host = Host(device, Driver() if device == "cuda" else None, lambda *_: None)
    stage = Stage(
        host,
        Contest(
            task=task,
            cell=cell,
            runner=Runner(plan, {}, host.driver),
            choice={},
            atomics=False,
            baselines=Baselines({}, {}, {}),
            seed=5,
        ),
        ROUNDS,
    )
    stage.refill(1, ROUNDS, {})
    return stage


def play(stage: Stage) -> None:
    entry = stage.entry("candidate")
    assert entry.before and entry.after
    for index in range(ROUNDS):
        entry.before(index)
        entry.call(index)
        entry.after(index)


def inputs(stage: Stage, position: int) -> list[torch.Tensor]:
    """What every call has for that input now."""
    return [call.inputs[position].clone() for call in stage._calls]


LARGE, SMALL = LARGE_BYTES // (2 * COLUMNS), 8


@DEVICES
def test_beside_large_operands_small_ones_take_turns(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(device, LARGE, monkeypatch)
    before = inputs(stage, 0)
    play(stage)
    x, w = inputs(stage, 0), inputs(stage, 1)
    assert not any(
        torch.equal(x[index], other) for index in range(ROUNDS) for other in (*before, *x[:index])
    )
    assert all(torch.equal(w[index], w[index % 2]) for index in range(ROUNDS)) and not torch.equal(
        w[0], w[1]
    )
    stage.check()


@DEVICES
def test_where_all_are_small_no_two_calls_get_the_same_of_any(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(device, SMALL, monkeypatch)
    play(stage)
    for position in (0, 1):
        given = inputs(stage, position)
        assert not any(
            torch.equal(given[index], other) for index in range(ROUNDS) for other in given[:index]
        )
    stage.check()


@pytest.mark.parametrize("rows", [LARGE, SMALL])
@pytest.mark.parametrize("position", [0, 1])
@DEVICES
def test_an_input_that_a_call_changed_is_seen(
    device: str, position: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(device, rows, monkeypatch)
    play(stage)
    stage._calls[2].inputs[position].view(torch.int16).flatten()[-1] ^= 1
    with pytest.raises(PlanFault, match="the kernel changed") as found:
        stage.check()
    assert found.value.guard == "input_mutated"


@DEVICES
def test_block_after_block_passes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staged(device, LARGE, monkeypatch)
    for number in (2, 3):
        play(stage)
        stage.check()
        stage.refill(number, ROUNDS - 1, {})
        assert len(stage._calls) == ROUNDS - 1
        stage.refill(number, ROUNDS, {})


@pytest.mark.parametrize("rows", [LARGE, SMALL])
@pytest.mark.parametrize("layout", ["transposed", "gaps", "offset"])
@DEVICES
def test_operands_may_lie_in_any_way(
    device: str, layout: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strides = {"transposed": (1, rows), "gaps": (COLUMNS + 3, 1), "offset": (COLUMNS, 1)}[layout]
    stage = staged(device, rows, monkeypatch, strides, offset=3 * (layout == "offset"))
    for number in (2, 3):
        play(stage)
        stage.check()
        stage.refill(number, ROUNDS, {})
    play(stage)
    stage._calls[1].inputs[0][0, 5] += 1
    with pytest.raises(PlanFault, match="the kernel changed"):
        stage.check()
