"""How answers are compared: units, special values, pieces of huge cells, and the samples of fp32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from referee import ops
from referee.answers.compare import against, compare
from referee.answers.error_sizes import ulp
from referee.answers.moves import EPS32
from referee.answers.tolerance import Expected, expectations
from referee.answers.user_budget import FLOOR
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.spec import Cell, Dtype, TensorSpec
from referee.ops.task import Task, load
from referee.ops.values import draw
from tests.referee.judge.test_compare import SEED, Candidate, tree_sum


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype, number: float) -> None:
    value = torch.tensor([number]).to(dtype)
    following = torch.nextafter(value.abs(), torch.tensor([torch.inf], dtype=dtype))
    if following.isfinite().all():
        assert (
            ulp(value.double(), dtype).item() == (following.double() - value.double().abs()).item()
        )


INF, NAN = torch.inf, torch.nan


@pytest.mark.parametrize(
    ("want", "got", "passes"),
    [
        (1.0, 1.0, True), (1.0, 1.0 + 2**-10, True), (1.0, 1.0 + 2**-9, False), (1.0, NAN, False), (1.0, INF, False),
        (NAN, NAN, True), (NAN, 1.0, False), (NAN, INF, False),
        (INF, INF, True), (INF, -INF, False), (INF, 65504.0, False), (INF, NAN, False), (-INF, -INF, True),
        (65520.0, INF, True), (65520.0, 65504.0, True), (65520.0, -INF, False), (80000.0, INF, True), (80000.0, 65504.0, False),
        (60000.0, INF, False), (0.0, -0.0, True), (0.0, 6e-8, True), (0.0, 6e-7, False),
    ],
)  # fmt: skip
def test_special_values_in_float16(want: float, got: float, passes: bool) -> None:
    value = torch.tensor([want], dtype=torch.float64)
    expected = Expected(value, 1.5 * ulp(value, torch.float16), torch.float16)
    assert (against(expected, torch.tensor([got]).half()).failure is None) == passes


def test_errors_that_are_not_finite_are_not_reported_as_numbers() -> None:
    value = torch.ones(2, dtype=torch.float64)
    found = against(
        Expected(value, 1.5 * ulp(value, torch.float16), torch.float16),
        torch.full((2,), NAN).half(),
    )
    assert found.failure is not None and (found.error, found.budget) == (None, None)


def test_integers_must_be_equal() -> None:
    value = torch.tensor([1, 2, 3])
    expected = Expected(value, torch.zeros(3, dtype=torch.float64), torch.int64)
    assert against(expected, value).failure is None
    failure = against(expected, value + torch.tensor([0, 0, 1])).failure
    assert (
        failure is not None
        and "1 of 3 elements wrong, worst at row 2: got 4, expected 3" in failure
    )


SPEC = TensorSpec("x", (8, 96), "float32", (96, 1))
CELL = Cell("f32-8x96", (SPEC,), (replace(SPEC, name="out"),), "normal", (1.0,), "required")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out, x: out * 0, "all zeros"),
        (lambda out, x: out * 1.5, "every wrong element is 1.5 times"),
        (
            lambda out, x: out * (1 + torch.arange(1, 9)[:, None] / 10),
            "each row is off by another factor",
        ),
        (lambda out, x: out + torch.arange(1, 9)[:, None] / 10, "each row is off by a constant"),
        (lambda out, x: torch.cat([out[:, :64], out[:, 64:] * 0], 1), "only columns from 64 on"),
        (lambda out, x: torch.cat([out[:, :1] + 1, out[:, 1:]], 1), "only columns up to 0"),
        (lambda out, x: torch.cat([out[:6], out[6:] + x[6:]], 0), "only rows from 6 on"),
        (lambda out, x: torch.where(x < 0, x, out), "answer is negative"),
        (lambda out, x: torch.where(x > 1, torch.inf, out), "infinity where the answer is finite"),
        (lambda out, x: torch.where(x > 1, torch.nan, out), "NaN where the answer is finite"),
        (
            lambda out, x: out.view(torch.int32).masked_fill(x > 1, -1).view(torch.float32),
            "elements were written",
        ),
        (lambda out, x: out[:4], "must be float32 [8, 96]"),
        (lambda out, x: out.half(), "the output is float16"),
    ],
)
def test_failures_say_what_such_errors_mean(
    change: Callable[[Tensor, Tensor], Tensor], words: str
) -> None:
    task = load("silu", "cpu")
    x = draw(CELL, SEED)
    out = torch.nn.functional.silu(x[0])
    assert compare(task, CELL, x, (out,)).status == "pass"
    result = compare(task, CELL, x, (change(out, x[0]),))
    assert result.status == "fail" and words in result.detail and len(result.detail) < 400, (
        result.detail
    )


def test_huge_cells_are_compared_in_pieces_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = load("layernorm", "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape == (5, 1000))
    inputs = draw(cell, SEED)
    right = task.eager(*inputs)
    wrong = right.clone()
    wrong[4, 7] += 1.0
    whole = [compare(task, cell, inputs, (out,)) for out in (right, wrong)]
    monkeypatch.setattr("referee.answers.compare.PIECE_ELEMENTS", 2000)
    pieces = [compare(task, cell, inputs, (out,)) for out in (right, wrong)]
    assert (
        [result.status for result in pieces]
        == [result.status for result in whole]
        == ["pass", "fail"]
    )
    assert "row 4, column 7" in pieces[1].detail and "row 4, column 7" in whole[1].detail


def test_empty_outputs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Task = load("silu", "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape[0] == 0)
    inputs = draw(cell, SEED)
    assert compare(task, cell, inputs, (inputs[0].clone(),)).status == "pass"


def test_a_row_owed_to_one_input_may_be_off_by_its_rounding() -> None:
    """exp(58.8) by way of exp2 is off by some 2^-18: a row in which nothing else counts must be
    allowed that at every column.
    """
    task = load("swiglu", "cpu")
    columns = 64
    gate, up = torch.full((columns, columns), -58.8), torch.diag(torch.full((columns,), -8.0))
    specs = {
        name: TensorSpec(name, tuple(gate.shape), "float32", (columns, 1))
        for name in ("gate", "up", "out")
    }
    cell = replace(task.required[0], inputs=(specs["gate"], specs["up"]), outputs=(specs["out"],))
    (expected,) = expectations(task, cell, (gate, up))
    value, budget = expected.value.diagonal(), expected.budget.diagonal()
    assert ((budget / value.abs()) > 2.0**-18).all()
    powers = torch.exp2(-gate * 1.4426950408889634)
    for off in (-(2.0**-19), 2.0**-19):
        answer = gate / (1 + powers * (1 + off)) * up
        assert compare(task, cell, (gate, up), (answer,)).status == "pass"
    assert (
        compare(task, cell, (gate, up), (gate / (1 + powers * (1 + 2.0**-14)) * up,)).status
        == "fail"
    )


@pytest.mark.parametrize("op", ["cross_entropy", "entropy"])
def test_of_a_single_logit_too_the_magnitude_counts(op: str) -> None:
    """Its largest one is rounded before it is taken away, where logits are multiplied for powers of
    two.
    """
    task = load(op, "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape == (3, 1))
    inputs = draw(cell, 3)
    (expected,) = expectations(task, cell, inputs)
    assert bool((expected.budget >= FLOOR * EPS32 * inputs[0].double().abs().flatten()).all())
    assert bool((expected.value == 0).all())


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "samples"),
    [
        ("float32", 1023, 33, 4),
        ("float32", 1024, 33, 8),
        ("float16", 1024, 33, 2),
        ("float32", 5, 32, 32),
        ("bfloat16", 5, 32, 2),
    ],
)
def test_fp32_answers_take_more_samples(
    dtype: Dtype, rows: int, columns: int, samples: int
) -> None:
    op, asked = ops.get("layernorm"), list[Tensor]()

    def noted(*inputs: Tensor) -> Tensor:
        asked.append(inputs[0])
        return exact(*inputs)

    task = load("layernorm", "cpu")
    exact: Candidate = task.oracle
    cell = cell_of(op, CellSpec(rows, columns, dtype, "mixed"))
    (found,) = expectations(replace(task, oracle=noted), cell, task.inputs(cell, 3))
    assert len(asked) == 1 + samples and bool((found.budget > 0).all())
    assert len({tuple(one[0].tolist()) for one in asked}) == 1 + samples, "each moves other inputs"


@pytest.mark.parametrize("columns", [3, 4, 6])
def test_a_narrow_layernorm_far_from_zero_passes_at_any_seed(columns: int) -> None:
    """As most samples may move all columns alike there, which the mean takes away."""
    task = load("layernorm", "cpu")
    for seed in range(80):
        cell = cell_of(
            task.op, CellSpec(3, columns, "float32", "shifted", (0.5, 1.0, 64.0)[seed % 3])
        )
        x, w, b = draw(cell, seed)
        total = x[:, 0].clone()
        for column in range(1, columns):
            total += x[:, column]
        moved = x - (total / columns)[:, None]
        answer = moved * torch.rsqrt(moved.square().mean(-1, keepdim=True) + 1e-5) * w + b
        (expected,) = expectations(task, cell, (x, w, b))
        assert float(((answer.double() - expected.value).abs() / expected.budget).max()) < 0.5, seed


@pytest.mark.parametrize(
    ("seed", "scaled"),
    [(1, ()), (1, ("b",)), (1, ("w",)), (815242933241682245, ("residual", "w", "b"))],
)
def test_right_kernels_pass_with_few_unsaturated_elements(
    seed: int, scaled: tuple[str, ...]
) -> None:
    task = load("add_layernorm_sigmoid", "gpu")
    cell = cell_of(task.op, CellSpec(10692, 128, "float32", "shifted", 64.0, scaled=scaled))
    x, residual, w, b = inputs = task.inputs(cell, seed, "cpu")
    h = x + residual
    d = h - tree_sum(h) / h.shape[-1]
    answer = torch.sigmoid(d * torch.rsqrt(tree_sum(d * d) / h.shape[-1] + 1e-5) * w + b)
    (expected,) = expectations(task, cell, inputs)
    share = (answer.double() - expected.value).abs() / expected.budget
    assert float(share.max()) < 0.6, (
        "a right kernel comes near the budget: another one would be over it"
    )
