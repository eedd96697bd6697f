"""Configurations of an autotuned candidate other than the one that is measured: where they are checked, and as which plans.

Triton picks a configuration for every key anew, on the user's GPU. What is saved has the measured one written in, but a file that is
only judged keeps all of them, and a wrong one makes the whole file wrong. They run at few cells, which tell wrong rows, widths and
dtypes: the wide cells and all values are for the one that is picked. Torch-free.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from referee.device.jobs import CellJob
from referee.ops.spec import Cell
from referee.plans.plan import Launch, LaunchPlan
from referee.plans.plan_parse import MAX_CONFIGS

SEVERAL_ROWS, SEVERAL_COLUMNS, SECRET = 5, 64, 3
FEW_CONFIGS = 16
"""So many are interpreted where a replay runs all of them too."""


def telling(cells: Sequence[Cell], seed: int | None = None) -> list[Cell]:
    """Where other configurations run: at the widest cell, at that of most rows, where the largest blocks leave nothing over, for every
    dtype at the smallest of several rows and columns, and with a `seed` at SECRET others."""
    several = [cell for cell in cells if _rows(cell) >= SEVERAL_ROWS and _width(cell) >= SEVERAL_COLUMNS] or list(cells)
    smallest = {cell.inputs[0].dtype: cell for cell in sorted(several, key=_elements, reverse=True)}
    even = max(cells, key=lambda cell: (_rows(cell) > 1, _width(cell) & -_width(cell), -_elements(cell)))
    found = dict.fromkeys([max(cells, key=_width), max(cells, key=_rows), even, *smallest.values()])
    others = [] if seed is None else [cell for cell in cells if cell not in found]
    return [*found, *random.Random(f"{seed}\0configurations").sample(others, min(SECRET, len(others)))]


def usable_configurations(plan: LaunchPlan, compiled: Collection[tuple[int, int]], most: int = MAX_CONFIGS) -> tuple[int, ...]:
    """The numbers of the configurations that every launch of the plan can be of, `most` at most and one at least.

    `compiled` has (step, configuration) pairs. A launch of fewer configurations than others takes its last one instead.
    """
    launches = [(number, step) for number, step in enumerate(plan.steps) if isinstance(step, Launch)]
    longest = max((len(step.configs) for _, step in launches), default=1)
    usable = [
        which for which in range(longest) if all((number, min(which, len(step.configs) - 1)) in compiled for number, step in launches)
    ]
    return tuple(usable[:most]) or (0,)


def other_configurations(jobs: Sequence[CellJob], choice: Mapping[int, int], seed: int) -> Iterator[tuple[int, list[CellJob]]]:
    """The number of each configuration that is not chosen everywhere, and the telling cells with it in place of the chosen ones."""
    several = any(isinstance(step, Launch) and len(step.configs) > 1 for job in jobs for step in job.plan.steps)
    where = telling([job.cell for job in jobs], seed) if several else []
    chosen = [job for job in jobs if job.cell in where]
    for which in sorted({config for job in chosen for _, config in job.binaries}):
        if made := [other for job in chosen if (other := _with(job, which, choice))]:
            yield which, made


def _with(job: CellJob, which: int, choice: Mapping[int, int]) -> CellJob | None:
    """The job with configuration `which` of every launch that has it, or None where that changes nothing."""
    steps, binaries, differs = [], {}, False
    for number, step in enumerate(job.plan.steps):
        if isinstance(step, Launch):
            usable = sorted(config for launch, config in job.binaries if launch == number)
            picked = choice[number] if choice.get(number) in usable else usable[0]
            config = which if which in usable else picked
            differs = differs or config != picked
            binaries[number, 0] = job.binaries[number, config]
            step = Launch(step.kernel, (step.configs[config],))
        steps.append(step)
    return CellJob(job.cell, replace(job.plan, steps=tuple(steps)), binaries) if differs else None


def _rows(cell: Cell) -> int:
    shape = cell.inputs[0].shape
    return shape[0] if len(shape) > 1 else 1


def _width(cell: Cell) -> int:
    shape = cell.inputs[0].shape
    return shape[-1] if shape else 0


def _elements(cell: Cell) -> int:
    return prod(cell.inputs[0].shape)
