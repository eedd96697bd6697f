"""The comparator's quick way to a pass: never kinder than the whole budget, and without the work
the budget takes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.answers.error_sizes import evaluate, ulp
from referee.answers.moves import EPS32
from referee.answers.tolerance import ULPS, expectations, is_apart, least_budget
from referee.answers.user_budget import FLOOR
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.recipes import FINITE
from referee.ops.spec import Cell
from referee.ops.task import Task, load
from referee.ops.values import draw
from tests.sampling import operations

SEED = 5
MOST_ROWS = 70
NAMES = [op.name for op in operations(start=2)]


def small_cells(task: Task) -> list[Cell]:
    return [cell for cell in task.cells if cell.inputs[0].shape[0] <= MOST_ROWS]


def rounded(task: Task, cell: Cell, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The right answer in the dtypes asked for."""
    exact = evaluate(task.oracle, inputs)
    return tuple(
        value.to(getattr(torch, spec.dtype))
        for value, spec in zip(exact, cell.outputs, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_least_budget_is_never_above_the_whole_one(name: str) -> None:
    task = load(name, "cpu")
    for cell in small_cells(task):
        for expected in expectations(task, cell, draw(cell, SEED)):
            finite = expected.value.isfinite().all(-1, keepdim=True) & torch.ones_like(
                expected.value, dtype=torch.bool
            )
            least = least_budget(expected.value, expected.dtype, alone=is_apart(task.op))
            if cell.values not in FINITE:
                assert bool((least <= expected.budget)[finite].all()), cell.name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(64,), (2, 32)])
def test_nor_where_answers_are_tiny(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    smallest = torch.finfo(dtype).smallest_normal
    value = torch.logspace(-3, 2, 64, dtype=torch.float64).mul(smallest).reshape(shape)
    least = ULPS * ulp(value, dtype) + FLOOR * EPS32 * (
        value if len(shape) == 1 else value.amax(-1, keepdim=True)
    )
    assert bool((least_budget(value, dtype) <= least).all())


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    ["rmsnorm", "softmax", "cross_entropy", "kl_div", "rope", "geglu", "cumsum", "dequant_int8"],
)
def test_both_ways_give_the_same_answer(name: str) -> None:
    task = load(name, "cpu")
    statuses = set()
    for cell in small_cells(task):
        inputs = draw(cell, SEED)
        right = rounded(task, cell, inputs)
        for change in (0.0, 2.0**-12, 2.0**-8, 2.0**-6, float("nan"), float("inf")):
            outputs = tuple(tensor.clone() for tensor in right)
            for last in outputs[0].flatten()[-1:] if change else ():
                last += change * (1 + last.abs())
            slow, quick = (
                compare(task, cell, inputs, outputs, expected_of=expectations),
                compare(task, cell, inputs, outputs),
            )
            assert slow.status == quick.status, (cell.name, change)
            assert slow.detail == quick.detail
            if quick.error is not None and quick.budget is not None and quick.status == "pass":
                assert quick.error <= quick.budget
            statuses.add(quick.status)
    assert statuses == {"pass", "fail"}


@pytest.mark.parametrize("name", ["silu", "cross_entropy", "swiglu", "bias_gelu"])
@pytest.mark.parametrize("given", [torch.inf, torch.nan])
def test_nothing_stands_for_an_infinity_or_what_is_not_a_number(name: str, given: float) -> None:
    task = load(name, "cpu")
    cell = next(
        cell
        for cell in small_cells(task)
        if cell.inputs[0].dtype == "float32" and cell.values == "normal"
    )
    inputs = draw(cell, SEED)
    for tensor in inputs[1:]:
        tensor.abs_()
    inputs[0].view(-1)[0] = given
    (right,) = rounded(task, cell, inputs)
    places = (~right.isfinite()).flatten().nonzero().flatten().tolist()
    assert len(places) == 1 and compare(task, cell, inputs, (right,)).status == "pass"
    for instead in (0.0, torch.inf, -torch.inf, torch.nan):
        answer = right.clone()
        answer.view(-1)[places] = instead
        same = torch.equal(answer.nan_to_num(nan=12345.0), right.nan_to_num(nan=12345.0))
        assert compare(task, cell, inputs, (answer,)).status == ("pass" if same else "fail"), (
            instead
        )


def test_a_plain_pass_needs_no_second_evaluation() -> None:
    task = load("rmsnorm", "cpu")

    def never(*inputs: Tensor) -> Tensor:
        raise AssertionError("eager was asked for")

    cell = next(cell for cell in small_cells(task) if cell.outputs[0].dtype == "bfloat16")
    inputs = draw(cell, SEED)
    (right,) = rounded(task, cell, inputs)
    found = compare(replace(task, eager=never), cell, inputs, (right,))
    (exact,) = evaluate(task.oracle, inputs)
    shares = (right - exact).abs() / least_budget(exact, right.dtype)
    assert found.status == "pass" and found.error and found.budget
    assert (
        found.error / found.budget == pytest.approx(float(shares.max()))
        and found.error in (right - exact).abs()
    )
    with pytest.raises(AssertionError, match="eager was asked for"):
        compare(replace(task, eager=never), cell, inputs, (right,), expected_of=expectations)


def test_an_answer_in_another_dtype_or_shape_is_refused_first() -> None:
    task = load("rmsnorm", "cpu")
    cell = small_cells(task)[0]
    inputs = draw(cell, SEED)
    found = compare(
        task, cell, inputs, tuple(value.double() for value in rounded(task, cell, inputs))
    )
    assert found.status == "fail"
    assert "the output is float64" in found.detail


@pytest.mark.parametrize("name", ["layernorm", "cross_entropy", "dequant_int8", "rope"])
def test_a_square_input_does_not_turn_a_weight_into_a_row(name: str) -> None:
    task = load(name, "cpu")
    cell = cell_of(task.op, CellSpec(256, 256, "float32", "mixed"))
    inputs = draw(cell, SEED)
    right = rounded(task, cell, inputs)
    assert compare(task, cell, inputs, right).status == "pass"
    right[0].view(-1)[-1] += 1.0
    assert compare(task, cell, inputs, right).status == "fail"
