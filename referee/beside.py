"""Beside a replay: small cells in Triton's interpreter, which looks at what no run on a GPU shows.

Every address that is read, what programs and threads do to each other's values, whether hints are true, rows longer than any usual
block. So what passes on a GPU passes where there is none. Of cells that are too large a few programs run (`large_cells.py`). Limits: of
a user's task, and of large cells, it says nothing of what takes it too long; then the verdict is the replay's alone, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from referee.interpreter.interpret import UNDECIDED, InterpreterUnsupported
from referee.large_cells import look_at_programs
from referee.one_thread import one_thread
from referee.open_lanes import has_open_lanes, what_depends
from referee.ops.spec import Cell
from referee.parts import parts
from referee.plans.plan import LaunchPlan
from referee.verdict import CellResult, Check, Rejection

if TYPE_CHECKING:
    from referee.cpu_path import CpuPath

USER_SECONDS = 5.0
"""Of processor time for a few cells of a user's task, which may be of any size; others have as long as without a GPU."""
WAITING_SECONDS = 2.0
AT_ONCE = 8
"""So many processes, or as there are processors. To begin one takes as long as several cells, and kernels are compiled meanwhile."""


Group = Sequence[tuple[Cell, LaunchPlan]]


@dataclass(frozen=True)
class Seen:
    """What the interpreter found at its cells, or why it was not asked."""

    cells: tuple[CellResult, ...] = ()
    rejection: Rejection | None = None
    why_not: str | None = None
    programs: int = 0
    """At so many large cells a few programs were looked at."""
    unseen: str | None = None
    """Why this says nothing of other large cells."""
    open_lanes: Check | None = None
    """What `open_lanes` found; None where no load has any."""


def look(
    path: CpuPath, traced: Group, large: Sequence[Group] = (), waiting: Sequence[Group] = (), *, stop: int | None = None
) -> Seen:
    """Run the plans, some of one dtype in a process of their own, and a few programs of those that are `large`. Raises JobLost.

    Of those that are `waiting` programs may wait for others that are not run; nothing is said of what takes too long.
    When something can be read from `stop` it ends, with words that say nothing.

    Nobody is rejected for what takes too long but a kernel of the catalogue's operations, at small cells: a right one does not.
    """
    if not traced:
        return Seen(why_not="no cell of this task is small enough for it")
    excused = UNDECIDED if path.task.op.origin == "user" else frozenset[str]()
    groups: dict[tuple[str, ...], list[tuple[Cell, LaunchPlan]]] = {}
    for cell, plan in traced:
        groups.setdefault(tuple(spec.dtype for spec in (*cell.inputs, *cell.outputs)), []).append((cell, plan))
    opened = has_open_lanes(path.text)
    beside = len(large) + len(waiting) + opened
    shares = _shares(path, list(groups.values()), min(AT_ONCE, len(os.sched_getaffinity(0))) - beside)
    with ThreadPoolExecutor(min(len(shares) + beside, AT_ONCE), thread_name_prefix="look") as pool:
        # What takes longest by itself begins first.
        picked = [pool.submit(_programs, path, group, stop) for group in large]
        looked = [pool.submit(_look, path, share, group, stop) for share, group in shares]
        patient = [pool.submit(_programs, replace(path, seconds=WAITING_SECONDS), group, stop) for group in waiting]
        lanes = pool.submit(_depends, path, traced) if opened else None
    found, why_not = [], None
    for one in looked:
        try:
            found.append(one.result())
        except InterpreterUnsupported as error:
            why_not = str(error)
    results = {result.name: result for cells, _ in found for result in cells}
    cells = tuple(results[cell.name] for cell, _ in traced if cell.name in results)
    rejections = [rejection for _, rejection in found if rejection is not None]
    # A part that took too long, or cannot be run, excuses no other one.
    rejection = min(rejections, key=lambda one: one.guard in UNDECIDED, default=None)
    programs = [one.result() for one in picked]
    wrong = [one for one in (*programs, *(one.result() for one in patient)) if one is not None and one.guard not in UNDECIDED]
    if wrong and (rejection is None or rejection.guard in UNDECIDED):
        rejection = wrong[0]
    if rejection is not None and rejection.guard not in excused:
        return Seen(cells, replace(rejection, reason=f"in Triton's interpreter {rejection.reason}"))
    try:
        depends = lanes.result() if lanes else None
    except InterpreterUnsupported as error:
        why_not = why_not or str(error)
    if why_not or rejection:
        return Seen(why_not=why_not or (rejection.reason if rejection else None))
    unseen = next((one.reason for one in programs if one is not None), None)
    looked_at = sum(len(group) for group, one in zip(large, programs, strict=True) if one is None)
    return Seen(cells, programs=looked_at, unseen=unseen, open_lanes=depends)


def _shares(path: CpuPath, groups: Sequence[Group], wanted: int) -> list[tuple[Group, Group]]:
    """About as many parts of the groups as are `wanted`, and of about the same effort: the cells of each, in order, and its group."""
    efforts = [[path.effort(*one) for one in group] for group in groups]
    total = sum(map(sum, efforts))
    return [
        (share, group)
        for group, own in zip(groups, efforts, strict=True)
        for share in parts(own, group, max(1, round(wanted * sum(own) / total)))
    ]


def _depends(path: CpuPath, traced: Group) -> Check:
    with one_thread():
        return what_depends(path, traced)


def _programs(path: CpuPath, group: Group, stop: int | None) -> Rejection | None:
    """As `look_at_programs`; what cannot be run took too long, so to speak."""
    try:
        with one_thread():
            return look_at_programs(path, group, stop=stop)
    except InterpreterUnsupported as error:
        return Rejection("correct", "timeout", str(error))


def _look(path: CpuPath, share: Group, group: Group, stop: int | None) -> tuple[tuple[CellResult, ...], Rejection | None]:
    with one_thread():
        return path.required(share, among=group, stop=stop)
