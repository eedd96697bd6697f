"""Compares a candidate's outputs with float64, element by element, within the budget of
`tolerance.py`.

Every element must be correct. NaN is correct only where NaN is expected, and infinities must match
in place and sign. Works on any device. A huge cell of a row-wise operation is compared in pieces of
rows, on the CPU one of usual size too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor

from referee.answers.error_sizes import Tensors, evaluate
from referee.answers.feedback import explain
from referee.answers.tolerance import Expected, expectations, is_apart, least_budget
from referee.concurrency import Memo
from referee.ops.cells import contiguous_strides
from referee.ops.recipes import FINITE
from referee.ops.spec import Cell, rows_are_told_apart
from referee.ops.task import Task
from referee.ops.torch_compat import computable
from referee.verdict import CellResult

PIECE_ELEMENTS = 1 << 27
# Torch runs pieces of this size in one thread; several would wait for each other on a busy machine.
CPU_PIECE_ELEMENTS = 1 << 15


@dataclass(frozen=True)
class Comparison:
    """One output against its expectation: the worst finite error, its budget, and the failure or
    None.

    `error` and `budget` are None if no element has a finite error and budget.
    """

    error: float | None
    budget: float | None
    failure: str | None

    @property
    def share(self) -> float:
        """The used share of the budget."""
        return self.error / self.budget if self.error is not None and self.budget else 0.0


def compare(
    task: Task,
    cell: Cell,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    briefly: bool = False,
    expected_of: Callable[[Task, Cell, Sequence[Tensor]], tuple[Expected, ...]] | None = None,
    memo: Memo | None = None,
) -> CellResult:
    """Judge `outputs` for `inputs`, both in the cell's order.

    `error` and `budget` of the result are those of the worst element. If the least budget suffices,
    the result has that one, because the full budget takes several times as long. `expected_of`
    supplies the expectations to callers that need them repeatedly. With `briefly`, the result only
    says pass or fail. `memo` keeps the correct answers by cell, for callers whose cells always have
    the same inputs.
    """
    problem = _contract(cell, outputs)
    if problem:
        return CellResult(cell.name, cell.role, "fail", detail=problem)
    task, worst = task.at(cell), Comparison(0.0, 0.0, None)
    norm = None if task.op.is_function else "norm" in task.op.name
    for piece_inputs, piece_outputs, first_row in _pieces(task, inputs, tuple(outputs)):
        # Answers to masks are so large that a partial budget says nothing about the others.
        if expected_of is None and cell.values not in FINITE:
            values = _exact(task, cell, piece_inputs, first_row, memo)
            if plain := _plainly_right(task, values, piece_outputs):
                worst = max(worst, plain, key=lambda comparison: comparison.share)
                continue
        allow = partial(expected_of or expectations, task, cell, piece_inputs)
        allowed = allow() if memo is None else memo.get(("allowed", cell, first_row), allow)
        for index, (expected, output) in enumerate(zip(allowed, piece_outputs, strict=True)):
            if briefly:
                if bool(_errors(expected, output)[1].any()):
                    return CellResult(cell.name, cell.role, "fail", detail="elements are wrong")
                continue
            found = against(expected, output, first_row=first_row, norm=norm)
            if found.failure and len(outputs) > 1:
                found = Comparison(found.error, found.budget, f"output {index}: {found.failure}")
            if found.failure:
                return CellResult(
                    cell.name,
                    cell.role,
                    "fail",
                    found.error,
                    found.budget,
                    found.failure + _layouts(task, cell),
                )
            worst = max(worst, found, key=lambda comparison: comparison.share)
    return CellResult(cell.name, cell.role, "pass", worst.error, worst.budget)


def compute_ahead(task: Task, cell: Cell, inputs: Sequence[Tensor], memo: Memo) -> None:
    """Put the first values that `compare` needs into `memo`."""
    outputs = tuple(
        torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in cell.outputs
    )
    for piece_inputs, _, first_row in _pieces(task, inputs, outputs):
        _exact(task, cell, piece_inputs, first_row, memo)


def _exact(task: Task, cell: Cell, inputs: Tensors, first_row: int, memo: Memo | None) -> Tensors:
    evaluated = partial(evaluate, task.oracle, inputs)
    return evaluated() if memo is None else memo.get(("exact", cell, first_row), evaluated)


def _plainly_right(task: Task, values: Tensors, outputs: Tensors) -> Comparison | None:
    """The worst element if all are finite and within the least budget, else None (undecided).

    `values` are the oracle's answers.
    """
    worst = Comparison(0.0, 0.0, None)
    for value, output in zip(values, outputs, strict=True):
        if not (value.is_floating_point() and output.is_floating_point()):
            return None
        if not output.numel():
            continue
        exact = value.double()
        error = (computable(output) - exact).abs_()
        least = least_budget(exact, output.dtype, alone=task.op.is_function or is_apart(task.op))
        # NaN counts as the largest, and so does an infinite error.
        at = (error / least).argmax()
        most, allowed = torch.stack([error.take(at), least.take(at)]).tolist()
        if not most <= allowed < inf:
            return None
        worst = max(worst, Comparison(most, allowed, None), key=lambda comparison: comparison.share)
    return worst


def against(
    expected: Expected, output: Tensor, *, first_row: int = 0, norm: bool | None = None
) -> Comparison:
    """Compare one output with its expectation.

    `first_row` and `norm` only change the message, as in `explain`.
    """
    if not output.numel():
        return Comparison(0.0, 0.0, None)
    error, wrong = _errors(expected, output)
    worst_error, worst_budget = _worst(error, expected.budget)
    if not bool(wrong.any()):
        return Comparison(worst_error, worst_budget, None)
    failure = explain(expected, output, error, wrong, first_row=first_row, norm=norm)
    return Comparison(worst_error, worst_budget, failure)


def _errors(expected: Expected, output: Tensor) -> tuple[Tensor, Tensor]:
    """|output - expected|, and a mask of the wrong elements."""
    if output.is_floating_point():
        return _errors_and_wrong(expected, output)
    wrong = output != expected.value
    for other in expected.also:
        wrong &= output != other.to(output.dtype)
    return (output.double() - expected.value.double()).abs(), wrong


def _worst(error: Tensor, budget: Tensor) -> tuple[float | None, float | None]:
    """The error with the largest share of its budget, and that budget, where both are finite."""
    # Selecting by a mask would copy a huge cell, which is compared many times during a timing.
    share = torch.where(
        error.isfinite() & budget.isfinite(),
        error / budget.clamp(min=torch.finfo(torch.float64).tiny),
        -1.0,
    )
    at = share.argmax()
    if float(share.flatten()[at]) < 0:
        return None, None
    return float(error.flatten()[at]), float(budget.flatten()[at])


def _errors_and_wrong(expected: Expected, output: Tensor) -> tuple[Tensor, Tensor]:
    value, budget = expected.value, expected.budget
    answer = output.double()
    error = (answer - value).abs()
    within = value.isfinite() & (error <= budget)
    if bool(within.all()):
        return error, ~within
    limit = torch.finfo(expected.dtype).max
    # A value that overflows in the output's dtype may be infinite or the largest number, within its
    # budget.
    overflows = (
        value.isfinite()
        & (value.abs() + budget > limit)
        & (answer == torch.copysign(torch.full_like(value, torch.inf), value))
    )
    same_infinity = value.isinf() & (answer == value)
    both_nan = value.isnan() & answer.isnan()
    right = within | overflows | same_infinity | both_nan
    for other in map(Tensor.double, expected.also):
        right |= value.isfinite() & (value.abs() > limit) & (answer == other)
        right |= (other.isinf() & (answer == other)) | (other.isnan() & answer.isnan())
    return error, ~right


def _contract(cell: Cell, outputs: Sequence[Tensor]) -> str | None:
    if len(outputs) != len(cell.outputs):
        return f"{len(outputs)} outputs, and the operation has {len(cell.outputs)}"
    for spec, output in zip(cell.outputs, outputs, strict=True):
        dtype = str(output.dtype).removeprefix("torch.")
        if dtype != spec.dtype or tuple(output.shape) != spec.shape:
            found, wanted = f"{dtype} {list(output.shape)}", f"{spec.dtype} {list(spec.shape)}"
            return f"the output is {found}, and must be {wanted}"
    return None


def _layouts(task: Task, cell: Cell) -> str:
    numbers = ", ".join(f"{scalar.name}={scalar.value:g}" for scalar in cell.scalars)
    odd = [
        spec
        for spec in cell.inputs
        if task.op.is_function and spec.strides != contiguous_strides(spec.shape)
    ]
    told = [f"`{spec.name}` is not contiguous: its strides are {spec.strides}" for spec in odd]
    return "".join(f"; {words}" for words in [*([f"at {numbers}"] if numbers else []), *told])


def _pieces(
    task: Task, inputs: Sequence[Tensor], outputs: Tensors
) -> Iterator[tuple[Tensors, Tensors, int]]:
    given = tuple(inputs)
    rows = outputs[0].shape[0] if outputs and outputs[0].dim() else 0
    largest = max((tensor.numel() for tensor in (*given, *outputs)), default=0)
    most = (
        min(PIECE_ELEMENTS, CPU_PIECE_ELEMENTS)
        if outputs and outputs[0].device.type == "cpu"
        else PIECE_ELEMENTS
    )
    apart = rows_are_told_apart(rows, (tensor.shape for tensor in (*given, *outputs)))
    if not (task.rowwise and apart) or largest <= most or rows < 2:
        yield given, outputs, 0
        return
    step = max(1, rows * most // largest)
    for first in range(0, rows, step):
        piece = slice(first, min(first + step, rows))
        yield (
            tuple(t[piece] if t.shape[0] == rows else t for t in given),
            tuple(t[piece] for t in outputs),
            first,
        )
