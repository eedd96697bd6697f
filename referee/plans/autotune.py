"""Autotuned launches: the configurations that are checked next to the measured one, and the first
call.

Triton chooses a configuration anew for every key, on the user's GPU. A saved file contains only the
measured one, but a judged file keeps all, and one wrong configuration makes the file wrong. The
others run at few test cases, which show errors in rows, widths and dtypes. Wide cases and all kinds
of values are for the chosen configuration.

At its first call with a shape Triton runs every configuration several times before the real launch.
It zeroes the arguments in `reset_to_zero` before each run and restores those in `restore_value`
after it. A kernel that adds to memory or changes it in place, without such an entry, gives a wrong
answer at that call only. Timed and checked plans have one fixed configuration and never show it, so
the judge checks this plan too. Source of the order: Autotuner.run and Autotuner._bench of Triton
3.6 and 3.7. Torch-free.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from referee.ops.spec import Cell
from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import Buffer, Copy, Fill, Launch, LaunchPlan, Step, View
from referee.plans.plan_parse import MAX_CONFIGS
from referee.verdict import Rejection

SEVERAL_ROWS, SEVERAL_COLUMNS, SECRET = 5, 64, 3
"""Number of secret test cases for the other configurations."""
FEW_CONFIGS = 16
"""Maximum number of interpreted configurations where a replay runs all of them too."""
APART, LEAST, MOST = ("shifted", "closed"), 2.0**-10, 2.0**10
"""Recipes and scales of values far from the constants in kernels, such as an epsilon."""


def representative_cells(cells: Sequence[Cell], seed: int | None = None) -> list[Cell]:
    """The test cases for the other configurations.

    These are the widest case, the one with the most rows, and one whose width the largest blocks
    divide. Every dtype adds its smallest case with several rows and columns. A `seed` adds SECRET
    others.
    """
    several = [
        cell for cell in cells if _rows(cell) >= SEVERAL_ROWS and _width(cell) >= SEVERAL_COLUMNS
    ] or list(cells)
    smallest = {cell.inputs[0].dtype: cell for cell in sorted(several, key=_elements, reverse=True)}
    even = max(
        cells, key=lambda cell: (_rows(cell) > 1, _width(cell) & -_width(cell), -_elements(cell))
    )
    found = dict.fromkeys([max(cells, key=_width), max(cells, key=_rows), even, *smallest.values()])
    others = [] if seed is None else [cell for cell in cells if cell not in found]
    return [
        *found,
        *random.Random(f"{seed}\0configurations").sample(others, min(SECRET, len(others))),
    ]


def usable_configurations(
    plan: LaunchPlan, compiled: Collection[tuple[int, int]], most: int = MAX_CONFIGS
) -> tuple[int, ...]:
    """The configuration numbers that every launch of the plan supports: at least one, at most
    `most`.

    `compiled` holds (step, configuration) pairs. A launch with fewer configurations uses its last
    one.
    """
    launches = plan.launches()
    longest = max((len(step.configs) for _, step in launches), default=1)
    usable = [
        which
        for which in range(longest)
        if all((number, min(which, len(step.configs) - 1)) in compiled for number, step in launches)
    ]
    return tuple(usable[:most]) or (0,)


def cells_for_every_configuration(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """Cells at which every other configuration runs: representative and extreme ones."""
    apart = [
        cell
        for cell in cells
        if cell.values in APART or any(not LEAST < scale < MOST for scale in cell.scales)
    ]
    return [*representative_cells(cells, seed), *apart]


def distinct_configurations(plan: LaunchPlan, configs: Sequence[int]) -> list[int]:
    """The first configuration of each group with equal grid and arguments.

    The interpreter ignores the numbers of warps and stages.
    """
    launches = [launch for _, launch in plan.launches()]
    first: dict[tuple[object, ...], int] = {}
    for config in configs:
        chosen = [step.configs[min(config, len(step.configs) - 1)] for step in launches]
        first.setdefault(tuple((launch.grid, launch.arguments) for launch in chosen), config)
    return list(first.values())


def _rows(cell: Cell) -> int:
    shape = cell.inputs[0].shape
    return shape[0] if len(shape) > 1 else 1


def _width(cell: Cell) -> int:
    shape = cell.inputs[0].shape
    return shape[-1] if shape else 0


def _elements(cell: Cell) -> int:
    return prod(cell.inputs[0].shape)


GUARD = "autotune"
_ADVICE = (
    "name what the kernel adds to in autotune's reset_to_zero, what it changes in place in "
    "restore_value, or drop autotune"
)


@dataclass(frozen=True)
class FirstCall:
    """The plan of a first call.

    `origin` maps its launches' step numbers to the step and configuration of the original plan.
    """

    plan: LaunchPlan
    origin: dict[int, tuple[int, int]]


def autotune_first_call(
    plan: LaunchPlan, usable: Mapping[int, Sequence[int]], choice: Mapping[int, int]
) -> FirstCall | None:
    """The first call of `plan`, or None if nothing in it is autotuned.

    `usable` lists the compiled configurations of each launch, `choice` the picked one (by default
    the first). The first, the last and the picked one stand for all that are tried.
    """
    if not plan.is_autotuned:
        return None
    made = _Making(plan)
    for number, step in enumerate(plan.steps):
        if not isinstance(step, Launch):
            made.steps.append(step)
            continue
        tried = usable[number]
        picked = choice[number] if choice.get(number) in tried else tried[0]
        if step.tuning is not None:
            for config in dict.fromkeys((tried[0], tried[-1], picked)):
                made.zero(step)
                made.keep(step)
                made.launch(number, step, config)
                made.give_back(step)
            made.zero(step)
        made.launch(number, step, picked)
    return FirstCall(
        LaunchPlan(tuple(made.buffers), plan.inputs, tuple(made.steps), plan.outputs), made.origin
    )


def as_first_call_rejection(rejection: Rejection) -> Rejection:
    """The rejection, reworded for the first call if its fault is the answer."""
    if rejection.guard not in ("wrong_answer", "not_deterministic"):
        return rejection
    reason = (
        "at the first call, where Triton tries every configuration on the same memory: "
        f"{rejection.reason}; {_ADVICE}"
    )
    return replace(rejection, stage="correct", guard=GUARD, reason=reason)


class _Making:
    def __init__(self, plan: LaunchPlan) -> None:
        self.buffers, self.steps = list(plan.buffers), list[Step]()
        self.origin: dict[int, tuple[int, int]] = {}
        self._copies: dict[View, View] = {}

    def launch(self, number: int, step: Launch, config: int) -> None:
        self.origin[len(self.steps)] = (number, config)
        self.steps.append(Launch(step.kernel, (step.configs[config],)))

    def zero(self, step: Launch) -> None:
        assert step.tuning is not None
        self.steps += [
            Fill(view, False if view.dtype == "bool" else 0) for view in step.tuning.zeroed
        ]

    def keep(self, step: Launch) -> None:
        self.steps += [Copy(self._copy_of(view), view) for view in self._restored(step)]

    def give_back(self, step: Launch) -> None:
        self.steps += [Copy(view, self._copy_of(view)) for view in self._restored(step)]

    def _restored(self, step: Launch) -> list[View]:
        """The restored views without inputs: every call shows an input that a kernel writes."""
        assert step.tuning is not None
        return [view for view in step.tuning.restored if self.buffers[view.buffer].input is None]

    def _copy_of(self, view: View) -> View:
        if view not in self._copies:
            strides = tuple(math.prod(view.shape[axis + 1 :]) for axis in range(len(view.shape)))
            self._copies[view] = View(len(self.buffers), 0, view.shape, strides, view.dtype)
            self.buffers.append(Buffer(math.prod(view.shape) * ITEMSIZE[view.dtype]))
        return self._copies[view]
