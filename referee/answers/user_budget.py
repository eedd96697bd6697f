"""The error budget for an output of a user's reference, without the final rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from referee.answers.error_sizes import (
    difference,
    evaluate,
    finite_size,
    per_row,
    row_max,
    row_max_of,
    ulp,
)
from referee.answers.moves import moved_beside_steps, unit_of
from referee.ops.task import Task
from referee.ops.traits import Traits

ERRORS = 8.0
FLOOR = 16.0
# An input is an outlier if it is this many times larger than any answer; the number of halvings
# that are tried; the relative change of the trial.
OUTLIER, OUTLIERS, CHANGE = 64.0, 4, 2.0**-10


def user_allowance(
    task: Task,
    index: int,
    value: Tensor,
    others: Sequence[Tensor],
    noise: Sequence[Tensor],
    dtype: torch.dtype,
    inputs: Sequence[Tensor],
    widths: Sequence[int],
) -> Tensor:
    """All terms of the budget except the first, for one output of a user's reference.

    The last two of `others` are eager's answers, in fp32 and in the cell's dtype. `noise` has the
    errors of randomly rounded evaluations.
    """
    traits, unit = task.traits, unit_of(dtype)
    alone = traits.alone(index)
    errors = [difference(other, value) for other in others]
    needed = traits.probabilities or not alone
    largest = _largest_that_count(task, index, value, inputs) if needed else []
    if alone:
        # A rounding to eight bits is no error of the reference.
        half = 0.5 if dtype.itemsize > 1 else 0.0
        least = half * ulp(value, dtype).nan_to_num(posinf=0.0)
        native = torch.minimum(torch.maximum(errors[-1], least), row_max(errors[-1]))
        one_by_one = _one_by_one(task, index, value, inputs, unit)
        spread = torch.stack([*errors[:-1], *noise, native, one_by_one]).amax(0)
        allowance = ERRORS * spread + FLOOR * unit * _unless_cancelling(
            traits, finite_size(value), value
        )
    elif len(widths) == 1:
        allowance = _of_one_part(traits, value, errors, noise, largest, unit)
    else:
        parts = [
            [torch.split(tensor, list(widths), -1) for tensor in group]
            for group in ([value], errors, noise)
        ]
        allowance = torch.cat(
            [
                _of_one_part(
                    traits,
                    part,
                    [one[number] for one in parts[1]],
                    [one[number] for one in parts[2]],
                    largest,
                    unit,
                ).expand_as(part)
                for number, part in enumerate(parts[0][0])
            ],
            -1,
        )
    if traits.probabilities and value.numel():
        # The logits are computed from the inputs, so the inputs' sizes stand for them.
        allowance = allowance + unit * reduce(
            torch.maximum, (size for _, size in largest), value.new_zeros(())
        ) * finite_size(value)
    return allowance


def _of_one_part(
    traits: Traits,
    value: Tensor,
    errors: Sequence[Tensor],
    noise: Sequence[Tensor],
    largest: Sequence[tuple[int, Tensor]],
    unit: float,
) -> Tensor:
    """The second and third term for an output, or for one joined part of it."""
    moves = reduce(torch.logical_or, (error > 0 for error in errors[:-2]))
    shared = moves | (row_max(moves) == 0)
    spread = reduce(torch.maximum, (row_max_of(error, shared) for error in (*errors, *noise)))
    magnitude = row_max_of(finite_size(value), shared)
    for elements, size in largest:
        if elements > value.numel() > 0:
            magnitude = torch.maximum(magnitude, size)
    return ERRORS * spread + FLOOR * unit * _unless_cancelling(traits, magnitude, value)


def _unless_cancelling(traits: Traits, magnitude: Tensor, value: Tensor) -> Tensor:
    if not traits.cancelling:
        return magnitude
    return torch.maximum(magnitude, (64.0 * row_max(finite_size(value))).clamp(max=1.0))


def _one_by_one(
    task: Task, index: int, value: Tensor, inputs: Sequence[Tensor], unit: float
) -> Tensor:
    """The sum of the errors from one rounding of each input.

    Inputs that move together may cancel each other, and so may numbers of both signs in a sum over
    rows. So positive and negative elements also move alone, and the largest effect counts.
    """
    total = torch.zeros_like(value)
    for position, tensor in enumerate(inputs):
        if tensor.is_floating_point():
            exact, most = tensor.double(), torch.zeros_like(value)
            for some in (torch.ones_like(exact, dtype=torch.bool), exact > 0, exact < 0):
                rounded = torch.where(some, exact * (1.0 - unit / 2), exact)
                moved = [*inputs[:position], rounded, *inputs[position + 1 :]]
                most = torch.maximum(
                    most, difference(evaluate(without_steps(task, inputs), moved)[index], value)
                )
            total += most
    return total


def _largest_that_count(
    task: Task, index: int, value: Tensor, inputs: Sequence[Tensor]
) -> list[tuple[int, Tensor]]:
    """For each floating input its number of elements, and its largest element for each row of
    `value`.

    The largest element is overall if rows do not match. Outliers that do not change a row when they
    change, such as a mask's -1e9, do not count there.
    """
    found = []
    usual = OUTLIER * finite_size(value).amax() if value.numel() else value.new_zeros(())
    for position, tensor in enumerate(inputs):
        if not tensor.is_floating_point() or not tensor.numel() or not value.numel():
            continue
        size, most = finite_size(tensor), torch.zeros_like(row_max(value))
        undecided = torch.ones_like(most, dtype=torch.bool)
        for _ in range(OUTLIERS):
            outlying = size > size.amax() / 2
            if not bool(size.amax() > usual) or not bool(undecided.any()):
                break
            changed = torch.where(outlying, tensor.double() * (1.0 - CHANGE), tensor.double())
            other = evaluate(task.oracle, [*inputs[:position], changed, *inputs[position + 1 :]])[
                index
            ]
            counts = undecided & row_max(other.double() != value)
            most = torch.where(counts, per_row(size, value), most)
            undecided &= ~counts
            size = torch.where(outlying, 0.0, size)
        found.append((tensor.numel(), torch.where(undecided, per_row(size, value), most)))
    return found


def without_steps(task: Task, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return lambda *moved: moved_beside_steps(task.oracle, inputs, moved)
