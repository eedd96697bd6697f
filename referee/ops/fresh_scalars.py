"""Draws the numbers among the arguments of `run` from the secret seed.

Otherwise a kernel with a table of the published numbers would pass every cell and be wrong for its
users.
"""

from __future__ import annotations

import random
from dataclasses import replace

from referee.ops.spec import Cell, Scalar
from referee.ops.task import Task
from referee.ops.torch_compat import as_tuple, computable

LEAST, MOST = 0.8, 1.25
TRIES = 4


def with_fresh_scalars(task: Task, seed: int) -> Task:
    """The task with other numbers in its "-scalars" cells, close to the listed ones.

    The reference must stay finite at them.
    """
    usual = task.scalars
    cells = tuple(
        _fresh(task, cell, seed) if cell.scalars != usual and "-scalars" in cell.name else cell
        for cell in task.cells
    )
    return replace(task, cells=cells)


def _fresh(task: Task, cell: Cell, seed: int) -> Cell:
    chance = random.Random(f"{seed} {cell.name}")
    for _ in range(TRIES):
        tried = replace(cell, scalars=tuple(_near(scalar, chance) for scalar in cell.scalars))
        try:
            found = task.at(tried).eager(*task.inputs(cell, seed))
        except Exception:
            # The reference does not take this number.
            continue
        if all(bool(computable(out).isfinite().all()) for out in as_tuple(found)):
            return tried
    return cell


def _near(scalar: Scalar, chance: random.Random) -> Scalar:
    if isinstance(scalar.value, int):
        return scalar
    value = scalar.value * chance.uniform(LEAST, MOST)
    # Numbers below one, such as decay rates and probabilities, stay below one.
    return replace(
        scalar, value=value if abs(value) < 1.0 or abs(scalar.value) >= 1.0 else scalar.value
    )
