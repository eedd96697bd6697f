"""What a task that a user brought would accept besides the right answer."""

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
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.vacuity import IN_OUTPUT, prove


def accepted_impostors(task: Task, seed: int) -> tuple[str, ...]:
    """Names of the impostors that pass at every required cell, or are the right answer there: zeros for a reference of zeros.

    What is right for one of several outputs and wrong for another is nothing to tell, because not every output has every input or dtype;
    but an output of zeros is.
    """
    # Some fifty evaluations a cell are of the same few inputs, and a user's reference may take seconds.
    eager = _once(task.eager)
    judged, task = replace(task, eager=eager), replace(task, eager=eager, oracle=_once(task.oracle))
    known: dict[str, tuple[Expected, ...]] = {}

    def once_a_cell(_: Task, cell: Cell, inputs: Sequence[Tensor]) -> tuple[Expected, ...]:
        if cell.name not in known:
            # They look at how the oracle calculates, which what it remembers does not show.
            known[cell.name] = expectations(judged, cell, inputs)
        return known[cell.name]

    found = prove(task, partial(compare, expected_of=once_a_cell, briefly=True), seed=seed, once=True)
    elsewhere = {_what(finding.impostor) for finding in found.findings} - {"zeros"}
    return (*found.accepted, *(name for name in found.unheard if _what(name) not in elsewhere))


def _what(impostor: str) -> str:
    return impostor.partition(IN_OUTPUT)[0]


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, evaluated once for equal inputs."""
    known: dict[bytes, Any] = {}

    @wraps(function)
    def remembered(*inputs: Tensor) -> Any:
        key = b"".join(map(_digest, inputs))
        if key not in known:
            known[key] = function(*inputs)
        result = known[key]
        return tuple(tensor.clone() for tensor in result) if isinstance(result, (tuple, list)) else result.clone()

    return remembered


def _digest(tensor: Tensor) -> bytes:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + content).digest()
