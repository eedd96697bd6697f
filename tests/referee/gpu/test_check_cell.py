"""Checking a cell by replay, with real memory and the real comparator, on the CPU: plans of fills
and copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from referee.ops import get
from referee.ops.spec import Cell, Op, Role, TensorSpec
from referee.ops.task import Task
from referee.plans.plan import Buffer, Copy, Fill, LaunchPlan, Step, View
from referee.replaying import replay_check
from referee.replaying.replay import Region, Runner
from referee.replaying.replay_check import CellOutcome, Host, check_cell, sampled
from referee.verdict import CellResult

ROWS, COLUMNS = 4, 6
SPEC = TensorSpec("x", (ROWS, COLUMNS), "float32", (COLUMNS, 1))
CELL = Cell(
    "f32-4x6",
    (SPEC,),
    (TensorSpec("out", SPEC.shape, "float32", SPEC.strides),),
    "normal",
    (1.0,),
    "required",
)
OP = Op("identity", "unary", "test", "identity", "x", "familiar", origin="user")
TASK = Task(OP, (CELL,), lambda x: x.clone(), lambda x: x.double())
INPUT, SCRATCH, OUTPUT = (
    View(buffer, 0, SPEC.shape, SPEC.strides, "float32") for buffer in range(3)
)
SIZE = ROWS * COLUMNS * 4


def outcome(
    *steps: Step, atomics: bool = False, cell: Cell = CELL, task: Task = TASK
) -> tuple[CellOutcome, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []
    host = Host("cpu", None, lambda text, seconds, whose: told.append((whose, text)))
    plan = LaunchPlan((Buffer(SIZE, 0), Buffer(SIZE), Buffer(SIZE)), (INPUT,), steps, (OUTPUT,))
    found = check_cell(host, Runner(plan, {}, None), task, cell, 7, choice={}, atomics=atomics)
    return found, told


@pytest.mark.parametrize("atomics", [False, True])
def test_a_right_answer_passes_with_its_error_and_budget(atomics: bool) -> None:
    found, _ = outcome(Copy(SCRATCH, INPUT), Copy(OUTPUT, SCRATCH), atomics=atomics)
    assert found.rejection is None
    assert (found.result.status, found.result.error) == ("pass", 0.0)
    assert found.result.budget is not None


def test_the_candidate_runs_twice_before_a_capability_compare() -> None:
    _, told = outcome(Copy(OUTPUT, INPUT), cell=replace(CELL, role="capability"))
    assert [text for whose, text in told if whose == "candidate"] == ["replaying f32-4x6"] * 2
    assert told[-1] == ("referee", "inspecting f32-4x6")


@pytest.mark.parametrize("atomics", [False, True])
def test_a_huge_capability_runs_twice_in_the_same_memory(
    monkeypatch: pytest.MonkeyPatch, atomics: bool
) -> None:
    monkeypatch.setattr(replay_check, "KEPT_BYTES", 0)
    made: list[Region] = []

    def region(*arguments: Any, **named: Any) -> Region:
        made.append(Region(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(replay_check, "Region", region)
    capability = replace(CELL, role="capability")
    found, _ = outcome(Copy(OUTPUT, INPUT), cell=capability, atomics=atomics)
    assert (found.rejection, found.result.status) == (None, "pass")
    first, second = made
    assert first.bytes is second.bytes
    assert first.address(INPUT) < first.address(OUTPUT) and second.address(INPUT) > second.address(
        OUTPUT
    )
    found, _ = outcome(Copy(OUTPUT, SCRATCH), cell=capability, atomics=atomics)
    assert found.rejection is not None and found.rejection.guard in (
        "wrong_answer",
        "not_deterministic",
    )
    outcome(Copy(OUTPUT, INPUT), atomics=atomics)
    assert made[-1].bytes is not made[-2].bytes


def test_of_a_huge_capability_too_two_runs_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_check, "KEPT_BYTES", 0)
    # The comparison always passes, so only the second run can show a read of unwritten memory.
    monkeypatch.setattr(
        replay_check, "compare", lambda *_, **__: CellResult(CELL.name, "capability", "pass")
    )
    found, _ = outcome(Copy(OUTPUT, SCRATCH), cell=replace(CELL, role="capability"))
    assert found.rejection is not None and found.rejection.guard == "not_deterministic"


@pytest.mark.parametrize("role", ["bench", "required"])
def test_required_cells_run_again_in_used_memory_on_new_values(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    if role == "required":
        monkeypatch.setattr(replay_check, "ONCE_MORE", 1.0)
    found, told = outcome(Copy(OUTPUT, INPUT), cell=replace(CELL, role=role))
    assert (found.rejection, found.result.status) == (None, "pass")
    assert [text for whose, text in told if whose == "candidate"] == ["replaying f32-4x6"] * 2 + [
        "replaying f32-4x6 again"
    ]


def test_which_required_cells_run_once_more_nobody_knows() -> None:
    cells = [replace(CELL, name=f"f32-{number}x6") for number in range(20)]
    chosen = [
        frozenset(cell.name for cell in cells if replay_check._once_more(cell, seed))
        for seed in range(100)
    ]
    assert len(set(chosen)) > 50 and 200 < sum(map(len, chosen)) < 400
    assert not replay_check._once_more(replace(CELL, role="capability"), 0)


@pytest.mark.parametrize(("values", "alike"), [("normal", True), ("mixed", False)])
def test_rows_of_normal_values_then_begin_as_they_did_before(
    monkeypatch: pytest.MonkeyPatch, values: str, alike: bool
) -> None:
    given: list[Tensor] = []

    def noted(
        task: Task, cell: Cell, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **_: Any
    ) -> CellResult:
        given.append(inputs[0].clone())
        return CellResult(cell.name, cell.role, "pass")

    monkeypatch.setattr(replay_check, "compare", noted)
    monkeypatch.setattr(replay_check, "ONCE_MORE", 1.0)
    outcome(Copy(OUTPUT, INPUT), cell=replace(CELL, values=values))
    earlier, later = given[0], given[-1]
    assert torch.equal(earlier[:, : COLUMNS // 2], later[:, : COLUMNS // 2]) is alike
    assert not torch.equal(earlier[:, COLUMNS // 2 :], later[:, COLUMNS // 2 :])


def test_what_changes_its_inputs_then_fails_there_too() -> None:
    found, _ = outcome(
        Copy(OUTPUT, INPUT),
        Fill(View(0, 8, (2,), (1,), "float32"), 0.5),
        cell=replace(CELL, role="bench"),
    )
    assert found.rejection is not None and found.rejection.guard == "input_mutated"


def test_a_wrong_answer_is_rejected_with_the_cell_and_the_place() -> None:
    found, _ = outcome(Copy(OUTPUT, INPUT), Fill(View(2, 4, (1,), (1,), "float32"), 9.0))
    assert found.rejection is not None
    assert (found.rejection.stage, found.rejection.guard) == ("correct", "wrong_answer")
    assert "at f32-4x6" in found.rejection.reason
    assert "row 0, column 1" in found.rejection.reason


def test_an_output_that_is_never_written_is_wrong() -> None:
    found, _ = outcome(Copy(SCRATCH, INPUT))
    assert found.rejection is not None
    assert found.rejection.guard == "wrong_answer"
    assert "written" in found.rejection.reason


def test_the_timed_cell_is_checked_on_mixed_values_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, float]] = []

    def noted(
        task: Task, cell: Cell, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **_: Any
    ) -> CellResult:
        compared.append((cell.values, float(inputs[0].abs().max())))
        return CellResult(cell.name, cell.role, "pass")

    monkeypatch.setattr(replay_check, "compare", noted)
    outcome(
        Copy(OUTPUT, INPUT), cell=replace(CELL, role="bench"), task=replace(TASK, op=get("relu2"))
    )
    largest = dict(compared)
    assert len(compared) == len(largest) == 2 and 4 * largest["normal"] < largest["mixed"]


def test_a_changed_input_is_rejected_even_if_the_answer_is_right() -> None:
    found, _ = outcome(Copy(OUTPUT, INPUT), Fill(View(0, 8, (2,), (1,), "float32"), 0.5))
    assert found.rejection is not None
    assert (found.rejection.stage, found.rejection.guard) == ("honest", "input_mutated")
    assert "input x" in found.rejection.reason


def test_unwritten_scratch_shows_as_a_difference_between_runs() -> None:
    # The first poison is NaN and so is the right answer here: only the second run, with the other
    # poison, tells them apart.
    task = Task(
        OP,
        (CELL,),
        lambda x: torch.full_like(x, float("nan")),
        lambda x: torch.full_like(x, float("nan")).double(),
    )
    host = Host("cpu", None, lambda text, seconds, whose: None)
    half = View(1, 0, (ROWS, COLUMNS), (COLUMNS, 1), "float32")
    plan = LaunchPlan(
        (Buffer(SIZE, 0), Buffer(SIZE), Buffer(SIZE)), (INPUT,), (Copy(OUTPUT, half),), (OUTPUT,)
    )
    found = check_cell(host, Runner(plan, {}, None), task, CELL, 7, choice={}, atomics=False)
    assert found.rejection is not None
    assert (found.rejection.stage, found.rejection.guard) == ("honest", "not_deterministic")


def test_some_rows_of_a_huge_capability_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_check, "HUGE_ELEMENTS", 1)
    monkeypatch.setattr(replay_check, "EDGE_ROWS", 1)
    monkeypatch.setattr(replay_check, "SECRET_ROWS", 2)
    x, w = torch.arange(40.0).reshape(20, 2), torch.ones(2)
    spec = replace(SPEC, shape=(20, 2), strides=(2, 1))
    cell = replace(
        CELL,
        inputs=(spec, replace(SPEC, shape=(2,), strides=(1,))),
        outputs=(spec,),
        role="capability",
    )
    task = replace(TASK, rowwise=True)
    _, shorter, inputs, outputs = sampled(task, cell, (x, w), (x * 2,), 3)
    assert 4 <= len(inputs[0]) <= 6
    assert torch.equal(inputs[0] * 2, outputs[0])
    assert torch.equal(inputs[0][0], x[0])
    assert torch.equal(inputs[0][-1], x[-1])
    assert torch.equal(inputs[1], w)
    assert shorter.outputs[0].shape == outputs[0].shape
    required = replace(cell, role="required")
    assert sampled(task, required, (x, w), (x,), 3)[2][0] is x
    assert sampled(TASK, cell, (x, w), (x,), 3)[2][0] is x
