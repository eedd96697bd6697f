"""A task: everything the judge needs to judge one op. Imports torch.

`eager` and `oracle` take the cell's inputs; a user op may return a tuple of tensors, catalogue ops return one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from referee.ops.catalogue import get
from referee.ops.cells import Profile, cells
from referee.ops.reference import eager, oracle
from referee.ops.spec import Cell, Op
from referee.ops.tolerance import Tolerance, public_tolerances
from referee.ops.traits import Traits
from referee.ops.user_cells import inputs_of
from referee.ops.values import draw

Function = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """One op with its trusted forms and cells.

    `tolerances` are hints by dtype (see `tolerance.py`). `rowwise` promises that output row i depends on row i of every
    input with the rows' leading dimension, so that a huge cell may be compared in pieces. `given` has the inputs that are not
    drawn, by cell, None for those that are; `traits` are those of a user's reference. `timed` is what baselines are built of,
    where `eager` does something besides to protect its inputs.
    """

    op: Op
    cells: tuple[Cell, ...]
    eager: Function
    oracle: Function
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    rowwise: bool = False
    given: Mapping[str, tuple[Tensor | None, ...]] = field(default_factory=dict)
    traits: Traits = Traits()
    timed: Function | None = None

    def inputs(self, cell: Cell, seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
        """The inputs of one of its cells on `device`: drawn from `seed`, or fresh copies of those given for it."""
        own = self.given.get(cell.name)
        return draw(cell, seed, device) if own is None else inputs_of(cell, own, seed, device)

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
