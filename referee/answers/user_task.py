"""Finds the wrong answers that a user's task would accept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.answers.tolerance import Expected, expectations
from referee.ops.mutation_check import IN_OUTPUT, check_task
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.reference.outcomes import unmet_outcomes


def accepted_wrong_answers(task: Task, seed: int) -> tuple[str, ...]:
    """Names of the wrong answers that pass at every required cell, or that are always the right
    answer.

    A wrong answer that is right for one output and wrong for another is not named, because not
    every output has every input or dtype. An output of zeros is named.
    """
    unmet = unmet_outcomes(task, seed)
    # About fifty evaluations of a cell use the same few inputs, and a reference may take seconds.
    eager = _once(task.eager)
    judged, task = replace(task, eager=eager), replace(task, eager=eager, oracle=_once(task.oracle))
    known: dict[str, tuple[Expected, ...]] = {}

    def once_a_cell(_: Task, cell: Cell, inputs: Sequence[Tensor]) -> tuple[Expected, ...]:
        if cell.name not in known:
            # Expectations watch the oracle's operations, which a cached result does not have.
            known[cell.name] = expectations(judged, cell, inputs)
        return known[cell.name]

    found = check_task(
        task, partial(compare, expected_of=once_a_cell, briefly=True), seed=seed, once=True
    )
    elsewhere = {_what(finding.wrong_answer) for finding in found.findings} - {"zeros"}
    never = (name for name in found.never_wrong if _what(name) not in elsewhere)
    return (*unmet, *found.accepted, *never)


def _what(name: str) -> str:
    return name.partition(IN_OUTPUT)[0]


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[bytes, Any] = {}

    @wraps(function)
    def remembered(*inputs: Tensor) -> Any:
        key = b"".join(map(_digest, inputs))
        if key not in known:
            known[key] = function(*inputs)
        result = known[key]
        return (
            tuple(tensor.clone() for tensor in result)
            if isinstance(result, (tuple, list))
            else result.clone()
        )

    return remembered


def _digest(tensor: Tensor) -> bytes:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + content).digest()
