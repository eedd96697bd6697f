"""What the tests of the stage share: a plan, its views, and how a block is played."""

from __future__ import annotations

from collections.abc import Callable

import torch

from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task
from referee.plans.plan import LaunchPlan, View
from referee.replaying.replay import Bound, Choice, Region, Runner
from referee.timing.stage import Stage

ROWS, COLUMNS = 3, 7
SPEC = TensorSpec("x", (ROWS, COLUMNS), "float16", (COLUMNS, 1))
CELL = Cell(
    "f16-3x7",
    (SPEC,),
    (TensorSpec("out", SPEC.shape, "float16", SPEC.strides),),
    "normal",
    (1.0,),
    "bench",
)
TASK = Task(
    Op("identity", "unary", "test", "identity", "x", "familiar", origin="user"),
    (CELL,),
    torch.clone,
    torch.Tensor.double,
)
INPUT, SCRATCH, OUTPUT = (
    View(buffer, 0, SPEC.shape, SPEC.strides, "float16") for buffer in range(3)
)
SIZE = ROWS * COLUMNS * 2
ROUNDS = 6


def play(stage: Stage, then: Callable[[int], object] = lambda index: None) -> None:
    """What `run_block` does with the candidate, without a clock; `then` comes while a call has not
    ended.
    """
    entry = stage.entry("candidate")
    assert entry.before and entry.after
    for index in range(ROUNDS):
        entry.before(index)
        entry.call(index)
        then(index)
        entry.after(index)


def regions(stage: Stage) -> list[Region]:
    """The candidate's, by call."""
    return [call.region for call in stage._calls]


def given(stage: Stage) -> list[bytes]:
    """The input of every round."""
    return [raw(region.tensor(INPUT)) for region in regions(stage)]


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes."""
    return bytes(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())


def doubling(values: torch.Tensor) -> torch.Tensor:
    return values * 2


class LeavingOut(Runner):
    """Copies the input, but for inputs that are told: there it writes zeros, in a call that is
    timed as in any other.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(plan, {}, None)
        self.left_out: set[bytes] = set()

    def bind(self, region: Region, choice: Choice) -> Bound:
        x, out = region.tensor(INPUT), region.tensor(OUTPUT)
        return Bound((lambda stream: out.zero_() if raw(x) in self.left_out else out.copy_(x),))
