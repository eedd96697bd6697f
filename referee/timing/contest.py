"""The timed contest, one call of its candidate, and helpers for their checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.replaying.replay import (
    Bound,
    Choice,
    Region,
    Runner,
)
from referee.timing.baselines import Baselines
from referee.timing.fingerprint import Noted, read
from referee.timing.mixing import Values

DRAWS = 2
"""Number of draws that a block's values mix; baselines alternate between them."""
Draws = Sequence[tuple[Tensor, ...]]
CHANGED = (
    "while being timed: the kernel changed an input: write only to new tensors, and within "
    "their bounds"
)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The timed object: a plan at a test case, and its baselines."""

    task: Task
    cell: Cell
    runner: Runner
    choice: Choice
    atomics: bool
    baselines: Baselines
    seed: int


@dataclass(frozen=True)
class TimedCall:
    """One of the candidate's calls: its region, the tensors in it, and the bound plan."""

    region: Region
    inputs: list[Tensor]
    outputs: list[Tensor]
    bound: Bound

    def give(self, values: Sequence[Values], positions: Iterable[int]) -> None:
        """Writes the inputs with these values."""
        for position in positions:
            values[position].write(self.inputs[position])


def by_tensor(noted: Iterable[Sequence[Noted]]) -> list[int]:
    """The fingerprints of all calls' first tensors, then of their second ones, and so on."""
    return read(one for column in zip(*noted, strict=True) for one in column)


def any_true(flags: list[Tensor]) -> bool:
    """Whether one of the booleans on the device is true. Waits for the device."""
    return bool(flags) and bool(torch.stack(flags).any())
