"""Preparing capability cells, which only earn badges: all at once, or one by one where some cannot be, within a time they share.

What hangs at some of them may neither hold up the verdict for long nor cost the others their badges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from referee.ops.spec import Cell
from referee.verdict import CellResult, Rejection

Item = TypeVar("Item")
Made = TypeVar("Made")

LEAST_SECONDS = 1.0  # with less time, failing would say nothing of the candidate


def each_badge(
    attempt: Callable[[list[Item], float], list[Made] | Rejection], items: Sequence[Item], cells: Sequence[Cell], seconds: float
) -> tuple[list[Made], list[CellResult]]:
    """What `attempt` makes of the items, one for each of `cells`, and a result for each cell of which it makes nothing.

    Every attempt is given at most half of what is left of `seconds`, so that there is time for others after one that hangs.
    """
    if not items:
        return [], []
    ends = time.monotonic() + seconds
    whole = attempt(list(items), seconds / 2)
    if not isinstance(whole, Rejection):
        return whole, []
    if len(items) == 1:
        return [], [_failed(cells[0], whole)]
    made: list[Made] = []
    results: list[CellResult] = []
    for item, cell in zip(items, cells, strict=True):
        left = round((ends - time.monotonic()) / 2, 1)
        if left < LEAST_SECONDS:
            results.append(CellResult(cell.name, cell.role, "skipped", detail="not tried: preparing the other cells took too long"))
            continue
        found = attempt([item], left)
        if isinstance(found, Rejection):
            results.append(_failed(cell, found))
        else:
            made += found
    return made, results


def _failed(cell: Cell, why: Rejection) -> CellResult:
    return CellResult(cell.name, cell.role, "fail", detail=why.reason)
