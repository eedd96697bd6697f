"""A task: everything the judge needs to judge one op. Imports torch.

`eager` and `oracle` take the cell's inputs; a user op may return a tuple of tensors, catalogue ops return one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from referee.ops.catalogue import get
from referee.ops.cells import Profile, cells
from referee.ops.reference import eager, oracle
from referee.ops.spec import Cell, Op
from referee.ops.tolerance import Tolerance, public_tolerances

Function = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """One op with its trusted forms and cells.

    `tolerances` are hints by dtype (see `tolerance.py`). `rowwise` promises that output row i depends on row i of every
    input with the rows' leading dimension, so that a huge cell may be compared in pieces.
    """

    op: Op
    cells: tuple[Cell, ...]
    eager: Function
    oracle: Function
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    rowwise: bool = False

    @property
    def required(self) -> tuple[Cell, ...]:
        """The cells of the op's contract, the bench cell included."""
        return tuple(cell for cell in self.cells if cell.role != "capability")

    @property
    def bench(self) -> Cell | None:
        """The timed cell, if the profile has one."""
        return next((cell for cell in self.cells if cell.role == "bench"), None)


def load(name: str, profile: Profile) -> Task:
    """The task of a catalogue or remix op. Raises UnknownOp."""
    op = get(name)
    return Task(op, cells(op, profile=profile), eager(op), oracle(op), public_tolerances(op), rowwise=True)
