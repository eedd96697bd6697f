"""Rows of all timed calls at once, for comparison with float64.

A kernel that skipped some calls, or wrote the same result to all, would be faster. A look at two
calls would often miss that. So a few rows of every call are compared, chosen after all calls have
ended. Calls with the same other operands are joined to one call with more rows, which takes no
longer than one call. Limits: the rows must be independent. Rows must not be as long as their
number, because rows and columns are then indistinguishable.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from referee.ops.spec import Cell, rows_are_told_apart
from referee.ops.task import Task

ROWS = 2048  # of all calls together


@dataclass(frozen=True)
class Call:
    """Inputs and outputs of a call. `others` is equal for calls with equal other operands."""

    index: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    others: Hashable


@dataclass(frozen=True)
class Joined:
    """Rows of several calls as one call at a test case with that many rows."""

    calls: tuple[Call, ...]
    cell: Cell
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def separable_rows(task: Task, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Number of independent rows of a call; 0 if rows cannot be compared separately."""
    rows = outputs[0].shape[0] if outputs and outputs[0].dim() else 0
    everywhere = all(output.shape[:1] == (rows,) for output in outputs)
    apart = rows_are_told_apart(rows, (tensor.shape for tensor in (*inputs, *outputs)))
    return rows if task.rowwise and everywhere and apart else 0


def joined(cell: Cell, calls: Sequence[Call], rows: int) -> Iterator[Joined]:
    """Some of the `rows` of every call, chosen now and in secret, as one call for each kind of
    `others`.

    The tensors are copies, so later changes to a call's memory do not matter.
    """
    some = _chosen(len(calls), rows)
    places = dict(zip((call.index for call in calls), some, strict=True))
    groups: dict[Hashable, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.others, []).append(call)
    for group in groups.values():
        inputs = _together(group, [call.inputs for call in group], places, rows)
        outputs = _together(group, [call.outputs for call in group], places, rows)
        count = len(group) * some.shape[1]
        longer = tuple(replace(spec, shape=(count, *spec.shape[1:])) for spec in cell.outputs)
        yield Joined(tuple(group), replace(cell, outputs=longer), inputs, outputs)


def _chosen(calls: int, rows: int) -> Tensor:
    """The row numbers to compare, equally many for each call."""
    each = -(-ROWS // calls)
    if each >= rows:
        return torch.arange(rows).repeat(calls, 1)
    return torch.from_numpy(
        np.random.default_rng(secrets.randbits(128)).integers(rows, size=(calls, each))
    )


def _together(
    group: Sequence[Call],
    tensors: Sequence[Sequence[Tensor]],
    places: Mapping[int, Tensor],
    rows: int,
) -> tuple[Tensor, ...]:
    """The chosen rows of all calls, position by position, or the operand without rows."""
    chosen = [places[call.index] for call in group]
    return tuple(
        _picked(position, chosen) if position[0].shape[:1] == (rows,) else position[0]
        for position in zip(*tensors, strict=True)
    )


def _picked(tensors: Sequence[Tensor], chosen: Sequence[Tensor]) -> Tensor:
    """The chosen rows of each tensor, one tensor after the other."""
    first, length = tensors[0], tensors[0][0].numel()
    if (
        length
        and all(tensor.is_contiguous() for tensor in tensors)
        and len({t.untyped_storage().data_ptr() for t in tensors}) == 1
    ):
        # They lie in one allocation, so one selection from all takes the host as long as one from a
        # single tensor.
        starts = torch.cat(
            [
                int(tensor.storage_offset()) + length * rows
                for tensor, rows in zip(tensors, chosen, strict=True)
            ]
        )
        words = first.untyped_storage().nbytes() // first.element_size()
        anywhere = first.as_strided((words - length + 1, length), (1, 1), 0)
        return anywhere.index_select(0, starts.to(first.device)).view(-1, *first.shape[1:])
    return torch.cat(
        [
            tensor.index_select(0, rows.to(tensor.device))
            for tensor, rows in zip(tensors, chosen, strict=True)
        ]
    )
