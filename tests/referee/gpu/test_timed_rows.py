"""Rows of several calls, joined to be compared at once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from referee.answers.compare import compare
from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task, load
from referee.ops.torch_compat import as_tuple
from referee.ops.values import draw
from referee.timing import timed_rows
from referee.timing.timed_rows import Call, joined, separable_rows
from tests.sampling import operations

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ROWS, COLUMNS = 20, 2
X, W = (
    TensorSpec("x", (ROWS, COLUMNS), "float32", (COLUMNS, 1)),
    TensorSpec("w", (COLUMNS,), "float32", (1,)),
)
CELL = Cell("f32-20x2", (X, W), (replace(X, name="out"),), "normal", (1.0, 1.0), "bench")
OP = Op("scaled", "unary", "test", "scaled", "x w", "familiar", origin="user")
TASK = Task(OP, (CELL,), torch.mul, torch.mul, rowwise=True)


def call(index: int, w: torch.Tensor) -> Call:
    """Elements tell of which call and row they are."""
    x = (torch.arange(ROWS) + 100.0 * index)[:, None].expand(ROWS, COLUMNS)
    return Call(index, (x, w), (x * w,), id(w))


def test_some_rows_of_every_call_are_there_and_any_row_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_rows, "ROWS", 12)
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    calls = [call(index, one if index % 2 else two) for index in range(4)]
    seen = set()
    for _ in range(200):
        found = list(joined(CELL, calls, ROWS))
        assert [[each.index for each in some.calls] for some in found] == [[0, 2], [1, 3]]
        for some, w in zip(found, (two, one), strict=True):
            assert {
                tuple(shape)
                for shape in (
                    some.inputs[0].shape,
                    some.outputs[0].shape,
                    some.cell.outputs[0].shape,
                )
            } == {(6, COLUMNS)}
            assert some.inputs[1] is w and torch.equal(some.inputs[0] * w, some.outputs[0])
            assert (some.inputs[0][:, 0] // 100).tolist() == [some.calls[0].index] * 3 + [
                some.calls[1].index
            ] * 3
            seen |= set(some.inputs[0][:, 0].tolist())
    assert seen == {100.0 * index + row for index in range(4) for row in range(ROWS)}


def test_few_rows_are_all_kept_and_later_writes_change_nothing() -> None:
    w = torch.ones(COLUMNS)
    held = [torch.full((ROWS, COLUMNS), float(index)) for index in range(3)]
    calls = [Call(index, (x, w), (x.clone(),), 0) for index, x in enumerate(held)]
    (some,) = joined(CELL, calls, ROWS)
    for each in calls:
        each.outputs[0].zero_()
    assert some.outputs[0][:, 0].tolist() == [0.0] * ROWS + [1.0] * ROWS + [2.0] * ROWS


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), (ROWS,), (ROWS, 3, 2)])
def test_rows_of_calls_in_one_allocation_are_those_of_each(
    device: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    memory = torch.randint(-100, 100, (1 << 13,)).to(dtype).to(device)
    size, places = math.prod(shape), (5000, 7, 3001, 8192 - math.prod(shape))
    inside = [memory[place : place + size].view(shape) for place in places]
    chosen = [torch.randint(ROWS, (5,)) for _ in places]
    chosen[3][0], chosen[1][0] = ROWS - 1, 0
    expected = torch.cat([tensor.cpu()[rows] for tensor, rows in zip(inside, chosen, strict=True)])
    assert torch.equal(timed_rows._picked(inside, chosen).cpu(), expected)
    assert torch.equal(
        timed_rows._picked([tensor.clone() for tensor in inside], chosen).cpu(), expected
    )
    turned = [tensor.transpose(0, -1).contiguous().transpose(0, -1) for tensor in inside]
    assert torch.equal(timed_rows._picked(turned, chosen).cpu(), expected)


def test_independent_rows_are_told_from_columns() -> None:
    x, w = torch.ones(ROWS, COLUMNS), torch.ones(COLUMNS)
    square, column = torch.ones(ROWS, ROWS), torch.ones(ROWS)
    assert separable_rows(TASK, (x, w), (x,)) == separable_rows(TASK, (x, w), (column,)) == ROWS
    for task, inputs, outputs in (
        (replace(TASK, rowwise=False), (x, w), (x,)),
        (TASK, (x, square), (x,)),
        (TASK, (square, column), (square,)),
        (TASK, (x, w), (x, w)),
        (TASK, (x, w), (torch.tensor(1.0),)),
    ):
        assert separable_rows(task, inputs, outputs) == 0


@pytest.mark.parametrize("op", [op.name for op in operations(start=4)])
def test_joined_rows_are_right_unless_one_call_is_wrong(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_rows, "ROWS", 6)
    task = load(op, "cpu")
    cell = next(
        cell for cell in task.cells
        if cell.role == "required" and cell.outputs[0].shape[0] > 2
        and not any(cell.outputs[0].shape[0] in spec.shape[1:] for spec in (*cell.inputs, *cell.outputs))
    )  # fmt: skip
    drawn = [draw(cell, seed) for seed in range(3)]
    rows = separable_rows(task, drawn[0], as_tuple(task.eager(*drawn[0])))
    assert rows == cell.outputs[0].shape[0]
    given = [
        [
            own if own.shape[:1] == (rows,) else first
            for own, first in zip(each, drawn[0], strict=True)
        ]
        for each in drawn
    ]
    calls = [Call(index, each, as_tuple(task.eager(*each)), 0) for index, each in enumerate(given)]
    (some,) = joined(cell, calls, rows)
    assert some.outputs[0].shape[0] == 6
    assert compare(task, some.cell, some.inputs, some.outputs).status == "pass"
    calls[1] = replace(
        calls[1], outputs=[torch.full_like(output, 77) for output in calls[1].outputs]
    )
    (some,) = joined(cell, calls, rows)
    assert compare(task, some.cell, some.inputs, some.outputs).status == "fail"
