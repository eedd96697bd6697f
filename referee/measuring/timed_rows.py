"""Rows of all timed calls at once, to be compared with float64.

A kernel that left out some of its calls, or wrote the same to all of them, would be faster, and a look at two calls of a block would often
miss them. So a few rows of every call are looked at, which are chosen when all have ended. Calls whose other operands are the same are
joined to one call of more rows: looking at all of them takes no longer than looking at one. Limits: tasks whose rows are independent,
and not where a row is as long as there are rows, because then the rows of an operand cannot be told from its columns.
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
    """What a call was given and what it gave. `others` is equal for calls whose operands without rows are the same."""

    index: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    others: Hashable


@dataclass(frozen=True)
class Joined:
    """Rows of several calls as one call at a cell of so many rows."""

    calls: tuple[Call, ...]
    cell: Cell
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def separable_rows(task: Task, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """How many rows a call has, each of which follows from the same rows of its operands; 0 where they cannot be looked at alone."""
    rows = outputs[0].shape[0] if outputs and outputs[0].dim() else 0
    everywhere = all(output.shape[:1] == (rows,) for output in outputs)
    apart = rows_are_told_apart(rows, (tensor.shape for tensor in (*inputs, *outputs)))
    return rows if task.rowwise and everywhere and apart else 0


def joined(cell: Cell, calls: Sequence[Call], rows: int) -> Iterator[Joined]:
    """Some of the `rows` of every call, chosen now and in secret, all if they are few: one for each kind of `others`.

    The tensors are copies: what happens to a call's memory afterwards does not change them.
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
    """The numbers of rows to look at, for each call as many."""
    each = -(-ROWS // calls)
    if each >= rows:
        return torch.arange(rows).repeat(calls, 1)
    return torch.from_numpy(np.random.default_rng(secrets.randbits(128)).integers(rows, size=(calls, each)))


def _together(group: Sequence[Call], tensors: Sequence[Sequence[Tensor]], places: Mapping[int, Tensor], rows: int) -> tuple[Tensor, ...]:
    """Position by position: the chosen rows of all calls, one call after the other, or what has no rows."""
    chosen = [places[call.index] for call in group]
    return tuple(_picked(position, chosen) if position[0].shape[:1] == (rows,) else position[0] for position in zip(*tensors, strict=True))


def _picked(tensors: Sequence[Tensor], chosen: Sequence[Tensor]) -> Tensor:
    """The chosen rows of each tensor, one tensor after the other."""
    first, length = tensors[0], tensors[0][0].numel()
    if length and all(tensor.is_contiguous() for tensor in tensors) and len({t.untyped_storage().data_ptr() for t in tensors}) == 1:
        # They lie in one allocation: picking from all of it takes the host as long as picking from one of them.
        starts = torch.cat([int(tensor.storage_offset()) + length * rows for tensor, rows in zip(tensors, chosen, strict=True)])
        words = first.untyped_storage().nbytes() // first.element_size()
        anywhere = first.as_strided((words - length + 1, length), (1, 1), 0)
        return anywhere.index_select(0, starts.to(first.device)).view(-1, *first.shape[1:])
    return torch.cat([tensor.index_select(0, rows.to(tensor.device)) for tensor, rows in zip(tensors, chosen, strict=True)])
