"""Compare a candidate's outputs with float64, element by element, under the budget of `tolerance.py`.

Every element counts: there is no share that may be wrong, NaN equals only a NaN that belongs there, and infinities must match in
place and sign. Works on any device; a huge cell of a row-wise op is compared in pieces of rows, on the CPU one of usual size too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from referee.answers.feedback import explain
from referee.answers.tolerance import Expected, Tensors, evaluate, expectations, least_budget
from referee.ops.cells import contiguous_strides
from referee.ops.spec import Cell, rows_are_told_apart
from referee.ops.task import Task
from referee.verdict import CellResult

PIECE_ELEMENTS = 1 << 27
# What torch gives to one thread: more than one would wait for each other at every step wherever something else keeps the cores busy.
CPU_PIECE_ELEMENTS = 1 << 15


@dataclass(frozen=True)
class Comparison:
    """One output against what was expected: the worst finite error and its budget, and why it fails, or None.

    Both are None where no element has a finite error and budget.
    """

    error: float | None
    budget: float | None
    failure: str | None

    @property
    def share(self) -> float:
        """How much of the budget is used."""
        return self.error / self.budget if self.error is not None and self.budget else 0.0


def compare(
    task: Task,
    cell: Cell,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    briefly: bool = False,
    expected_of: Callable[[Task, Cell, Sequence[Tensor]], tuple[Expected, ...]] | None = None,
) -> CellResult:
    """Judge `outputs` for `inputs`, both in the cell's order. `error` and `budget` are those of the worst element.

    Where the least budget is enough it is the budget that is told, because the whole one takes several times as long to know.
    `expected_of` gives what is expected, for who asks for it more than once. With `briefly` the answer only says whether it is right.
    """
    problem = _contract(cell, outputs)
    if problem:
        return CellResult(cell.name, cell.role, "fail", detail=problem)
    worst = Comparison(0.0, 0.0, None)
    norm = None if task.op.origin == "user" else "norm" in task.op.name
    for piece_inputs, piece_outputs, first_row in _pieces(task, inputs, tuple(outputs)):
        if expected_of is None and (plain := _plainly_right(task, piece_inputs, piece_outputs)):
            worst = max(worst, plain, key=lambda comparison: comparison.share)
            continue
        allowed = (expected_of or expectations)(task, cell, piece_inputs)
        for index, (expected, output) in enumerate(zip(allowed, piece_outputs, strict=True)):
            if briefly:
                if bool(_errors(expected, output)[1].any()):
                    return CellResult(cell.name, cell.role, "fail", detail="elements are wrong")
                continue
            found = against(expected, output, first_row=first_row, norm=norm)
            if found.failure and len(outputs) > 1:
                found = Comparison(found.error, found.budget, f"output {index}: {found.failure}")
            if found.failure:
                return CellResult(cell.name, cell.role, "fail", found.error, found.budget, found.failure + _layouts(task, cell))
            worst = max(worst, found, key=lambda comparison: comparison.share)
    return CellResult(cell.name, cell.role, "pass", worst.error, worst.budget)


def _plainly_right(task: Task, inputs: Tensors, outputs: Tensors) -> Comparison | None:
    """The worst element, if every one is finite and within a part of its budget; None says nothing."""
    worst = Comparison(0.0, 0.0, None)
    for value, output in zip(evaluate(task.oracle, inputs), outputs, strict=True):
        if not (value.is_floating_point() and output.is_floating_point()):
            return None
        if not output.numel():
            continue
        exact = value.double()
        error = (output - exact).abs_()
        least = least_budget(exact, output.dtype, alone=task.op.origin == "user")
        # What is not a number counts as the largest: so does an infinity, of which nothing is a part.
        at = (error / least).argmax()
        most, allowed = torch.stack([error.take(at), least.take(at)]).tolist()
        if not most <= allowed < inf:
            return None
        worst = max(worst, Comparison(most, allowed, None), key=lambda comparison: comparison.share)
    return worst


def against(expected: Expected, output: Tensor, *, first_row: int = 0, norm: bool | None = None) -> Comparison:
    """Compare one output with its expectation. `first_row` and `norm` matter to the message only, as `explain` says."""
    if not output.numel():
        return Comparison(0.0, 0.0, None)
    error, wrong = _errors(expected, output)
    worst_error, worst_budget = _worst(error, expected.budget)
    if not bool(wrong.any()):
        return Comparison(worst_error, worst_budget, None)
    failure = explain(expected, output, error, wrong, first_row=first_row, norm=norm)
    return Comparison(worst_error, worst_budget, failure)


def _errors(expected: Expected, output: Tensor) -> tuple[Tensor, Tensor]:
    """|output - expected| and which elements are wrong."""
    if output.is_floating_point():
        return _judged(expected, output)
    wrong = output != expected.value
    for other in expected.also:
        wrong &= output != other.to(output.dtype)
    return (output.double() - expected.value.double()).abs(), wrong


def _worst(error: Tensor, budget: Tensor) -> tuple[float | None, float | None]:
    """The error that uses most of its budget, and that budget, among those where both are finite."""
    # Picking elements by a mask would copy them; a huge cell is looked at many times while it is timed.
    share = torch.where(error.isfinite() & budget.isfinite(), error / budget.clamp(min=torch.finfo(torch.float64).tiny), -1.0)
    at = share.argmax()
    if float(share.flatten()[at]) < 0:
        return None, None
    return float(error.flatten()[at]), float(budget.flatten()[at])


def _judged(expected: Expected, output: Tensor) -> tuple[Tensor, Tensor]:
    """|output - expected| and which elements are wrong, for a floating output."""
    value, budget = expected.value, expected.budget
    answer = output.double()
    error = (answer - value).abs()
    within = value.isfinite() & (error <= budget)
    if bool(within.all()):
        return error, ~within
    limit = torch.finfo(expected.dtype).max
    # What overflows on its way into the dtype may arrive as infinity or as the largest number, if that is within the budget.
    overflows = value.isfinite() & (value.abs() + budget > limit) & (answer == torch.copysign(torch.full_like(value, torch.inf), value))
    same_infinity = value.isinf() & (answer == value)
    both_nan = value.isnan() & answer.isnan()
    right = within | overflows | same_infinity | both_nan
    for other in expected.also:
        right |= value.isfinite() & (value.abs() > limit) & (answer == other.double())
    return error, ~right


def _contract(cell: Cell, outputs: Sequence[Tensor]) -> str | None:
    if len(outputs) != len(cell.outputs):
        return f"{len(outputs)} outputs, and the operation has {len(cell.outputs)}"
    for spec, output in zip(cell.outputs, outputs, strict=True):
        dtype = str(output.dtype).removeprefix("torch.")
        if dtype != spec.dtype or tuple(output.shape) != spec.shape:
            return f"the output is {dtype} {list(output.shape)}, and must be {spec.dtype} {list(spec.shape)}"
    return None


def _layouts(task: Task, cell: Cell) -> str:
    """Of a user's example, which nobody else describes to whoever wrote the kernel."""
    odd = [spec for spec in cell.inputs if task.op.origin == "user" and spec.strides != contiguous_strides(spec.shape)]
    return "".join(f"; `{spec.name}` is not contiguous: its strides are {spec.strides}" for spec in odd)


def _pieces(task: Task, inputs: Sequence[Tensor], outputs: Tensors) -> Iterator[tuple[Tensors, Tensors, int]]:
    """The whole cell, or pieces of its rows when it is huge and the op allows it."""
    given = tuple(inputs)
    rows = outputs[0].shape[0] if outputs and outputs[0].dim() else 0
    largest = max((tensor.numel() for tensor in (*given, *outputs)), default=0)
    most = min(PIECE_ELEMENTS, CPU_PIECE_ELEMENTS) if outputs and outputs[0].device.type == "cpu" else PIECE_ELEMENTS
    apart = rows_are_told_apart(rows, (tensor.shape for tensor in (*given, *outputs)))
    if not (task.rowwise and apart) or largest <= most or rows < 2:
        yield given, outputs, 0
        return
    step = max(1, rows * most // largest)
    for first in range(0, rows, step):
        piece = slice(first, min(first + step, rows))
        yield tuple(t[piece] if t.shape[0] == rows else t for t in given), tuple(t[piece] for t in outputs), first
