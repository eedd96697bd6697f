"""A few programs of the launches at cells that are too large for the interpreter: what they read, change and leave to chance.

A kernel that only many rows reach is launched at no small cell, and no replay shows that it reads past the end of a tensor, takes what an
earlier call left in its scratch memory for its own, or puts back what it changed. Answers are for the replay to compare. Limits: the
programs that are taken are few (`interpreter/picking.py`), and where they use atomics they may wait for others, without an end; values
come again after some rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from referee.interpreter.interpret import Execution, execute
from referee.ops.spec import Cell, TensorSpec, rows_are_told_apart
from referee.plans.branches import branches
from referee.plans.plan import LaunchPlan
from referee.plans.sampling import Way, ways
from referee.verdict import Rejection

if TYPE_CHECKING:
    from torch import Tensor

    from referee.cpu_path import CpuPath
    from referee.ops.task import Task

ROWS = 64
"""So many rows have values of their own: drawing those of all takes longer than everything else."""
MOST_CELLS, FEW, ALIKE, BLOCK = 7, 16, 4.0, 128
"""So many shapes; of few rows the interpreter runs whole cells; two are about the same where neither side is so many times the other."""

Traced = Sequence[tuple[Cell, LaunchPlan]]


def large(traced: Traced, small: Traced, text: str) -> list[Traced]:
    """Those of `traced` where a few programs are to be looked at, in three groups that take about as long.

    The timed one by itself, the largest of those of about one shape, and what else launches a kernel as none of these nor of `small` does.
    """
    choosing = branches(text)
    shapes = list[tuple[int, int]]()
    seen: set[Way] = {way for _, plan in small for way in ways(plan, choosing, False)}
    chosen: list[tuple[Cell, LaunchPlan]] = []
    for cell, plan in sorted(traced, key=lambda pair: (pair[0].role != "bench", -_elements(pair[0]))):
        new = set(ways(plan, choosing, False)) - seen
        shape = _rows(cell), cell.inputs[0].shape[-1]
        another = shape[0] > FEW and not any(_about(shape, one) for one in shapes)
        if new or (another and len(chosen) < MOST_CELLS):
            chosen.append((cell, plan))
            shapes.append(shape)
            seen |= new
    return [group for group in (chosen[:1], chosen[1::2], chosen[2::2]) if group]


def look_at_programs(path: CpuPath, group: Traced, *, stop: int | None = None) -> Rejection | None:
    """What is wrong with a few programs of each launch. Raises JobLost or InterpreterUnsupported. `stop` as in `execute`."""
    runs = [
        Execution(plan, _few(path.task, cell, path.seed), config=path.configs[0], picked=path.seed) for cell, plan in group
    ]
    answers = execute(path.workers, path.text, runs, seconds=path.seconds, unread=path.unread, stop=stop)
    cell, last = group[len(answers) - 1][0], answers[-1]
    return replace(last, reason=f"at {cell.name}: {last.reason}") if isinstance(last, Rejection) else None


def _few(task: Task, cell: Cell, seed: int) -> tuple[Tensor, ...]:
    """Inputs of a few rows."""
    rows = _rows(cell)
    if rows > ROWS and rows_are_told_apart(rows, (spec.shape for spec in (*cell.inputs, *cell.outputs))):
        inputs, outputs = (tuple(_shorter(spec, rows) for spec in specs) for specs in (cell.inputs, cell.outputs))
        cell = replace(cell, inputs=inputs, outputs=outputs)
    return task.inputs(cell, seed)


def _shorter(spec: TensorSpec, rows: int) -> TensorSpec:
    return replace(spec, shape=(ROWS, *spec.shape[1:])) if spec.shape[:1] == (rows,) else spec


def _about(one: tuple[int, int], other: tuple[int, int]) -> bool:
    near = all(1 / ALIKE < a / b < ALIKE for a, b in zip(one, other, strict=True))
    # Blocks fill rows of the one, and of the other they do not.
    return near and (one[1] % BLOCK == 0) == (other[1] % BLOCK == 0)


def _elements(cell: Cell) -> int:
    return prod(cell.inputs[0].shape)


def _rows(cell: Cell) -> int:
    shape = cell.inputs[0].shape
    return shape[0] if len(shape) > 1 else 1
