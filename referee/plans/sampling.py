"""Which of the traced plans are compiled where none is replayed: so many that every way in which a kernel is launched is there.

Triton compiles a kernel when it is launched, and of it only the branches that constants choose; what no compiled plan launches may
not compile at all, and the interpreter runs it nevertheless. Limits: constants that are numbers (block sizes) make a new way only where
they choose between branches (`branches.py`), and `MOST_PLANS` are compiled at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from referee.ops.spec import Cell
from referee.plans.branches import Branches
from referee.plans.plan import DtypeValue, Launch, LaunchConfig, LaunchPlan, Value

COMPILED_DTYPES = 3
MOST_PLANS = 8

Way = tuple[str, frozenset[tuple[str, Value]]]


def compile_sample(
    traced: Sequence[tuple[Cell, LaunchPlan]], branches: Mapping[str, Branches], *, dtypes: int = COMPILED_DTYPES, ones: bool = True
) -> list[LaunchPlan]:
    """The plan of the timed cell, one of each other dtype (`dtypes` with it), and one for each further way to launch a kernel.

    With `ones` it is a way of its own that a number is 1, which Triton makes a constant.
    """
    order = sorted(traced, key=lambda pair: pair[0].role != "bench")
    by_dtype: dict[str, LaunchPlan] = {}
    for cell, plan in order:
        by_dtype.setdefault(cell.inputs[0].dtype, plan)
    chosen = list(by_dtype.values())[:dtypes]
    seen = {way for plan in chosen for way in ways(plan, branches, ones)}
    for _, plan in order:
        new = set(ways(plan, branches, ones)) - seen
        if new and len(chosen) < MOST_PLANS:
            chosen.append(plan)
            seen |= new
    return chosen


def ways(plan: LaunchPlan, branches: Mapping[str, Branches], ones: bool) -> Iterator[Way]:
    """The ways in which a plan launches kernels: their names, with what decides which branches are compiled; `ones` as above."""
    for step in plan.steps:
        if isinstance(step, Launch):
            for config in step.configs:
                yield step.kernel, frozenset([*_deciding(config, ones), *branches[step.kernel].chosen(config.arguments)])


def _deciding(config: LaunchConfig, ones: bool) -> Iterator[tuple[str, Value]]:
    """The arguments that choose between branches when the kernel is compiled."""
    for argument in config.arguments:
        value = argument.value
        flag = argument.constexpr and isinstance(value, bool | str | DtypeValue)
        if value is None or flag or (ones and not argument.constexpr and type(value) is int and value == 1):
            yield argument.name, value
