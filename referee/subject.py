"""What a candidate is judged by: an op of the catalogue, a task made in this process, or a user's reference file.

Torch-free until a task is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from referee import ops
from referee.device.jobs import TaskName
from referee.ops.cells import Profile
from referee.ops.fresh_cells import MOST_ROWS
from referee.ops.spec import Cell, Op

if TYPE_CHECKING:
    from referee.ops.task import Task

# A larger cell would keep the interpreter busy for minutes, one program at a time.
MOST_ELEMENTS = 1 << 18


class Subject:
    """One op with its cells. Raises UnknownOp or UserReferenceError for what cannot be found."""

    def __init__(self, wanted: str | Task | TaskName) -> None:
        self._given: Task | None = None
        self._loaded: dict[Profile, Task] = {}
        self.name: TaskName | None = None
        if isinstance(wanted, str):
            self.name = TaskName(wanted)
        elif isinstance(wanted, TaskName):
            self.name = wanted
        elif _in_catalogue(wanted.op):
            self.name = TaskName(wanted.op.name)
        else:
            self._given = wanted

    @cached_property
    def op(self) -> Op:
        """The op judged."""
        if self.name is not None and self.name.file is None:
            return ops.get(self.name.op)
        return self.task("cpu").op

    @property
    def replayable(self) -> bool:
        """True when the replay worker can load the task too."""
        return self.name is not None

    def task(self, profile: Profile) -> Task:
        """The task itself. Imports torch."""
        if self._given is not None:
            return self._given
        if profile not in self._loaded:
            self._loaded[profile] = self._load(profile)
        return self._loaded[profile]

    def _load(self, profile: Profile) -> Task:
        assert self.name is not None
        if self.name.file is None:
            from referee.ops.task import load

            return load(self.name.op, profile)
        from referee.ops.user import load_user

        return load_user(self.name.file, self.name.function, profile)

    def cells(self, profile: Profile) -> tuple[Cell, ...]:
        """Every cell of the profile."""
        if self.name is not None and self.name.file is None:
            return ops.cells(self.op, profile=profile)
        return self.task(profile).cells

    def bench(self) -> Cell | None:
        """The cell that a GPU would time."""
        return next((cell for cell in self.cells("gpu") if cell.role == "bench"), None)


def required(cells: Sequence[Cell]) -> list[Cell]:
    """The cells a kernel must pass, the timed one included."""
    return [cell for cell in cells if cell.role != "capability"]


def partition_by_rows(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells with as many rows as every axis of a grid may have, and those with more."""
    many = [cell for cell in cells if len(cell.inputs[0].shape) == 2 and cell.role == "required" and cell.inputs[0].shape[0] > MOST_ROWS]
    return [cell for cell in cells if cell not in many], many


def capabilities(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that only earn a badge."""
    return [cell for cell in cells if cell.role == "capability"]


def feasible(cell: Cell) -> bool:
    """True when the interpreter can run the cell in reasonable time."""
    return all(prod(spec.shape) <= MOST_ELEMENTS for spec in (*cell.inputs, *cell.outputs))


def _in_catalogue(op: Op) -> bool:
    if op.origin == "user":
        return False
    try:
        return ops.get(op.name) == op
    except ops.UnknownOp:
        return False
