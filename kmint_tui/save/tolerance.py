"""The tolerance of a saved kernel's own test, from the budgets of its verdict.

The referee's budget covers one element of one case. The tolerance is a share of the row's largest
output and covers sums and functions only; the test itself adds the rounding of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from referee.ops import Cell, Op, cells
from referee.verdict import CellResult, Verdict

LEAST, MOST = 2e-6, 1e-4
"""Eager PyTorch itself needs the first; beyond the second a sum in float16 would pass."""
UNKNOWN = 2e-5
_MARGIN = 4.0
_MOST_ELEMENTS = 1 << 16


def tolerance(op: Op, verdict: Verdict) -> float:
    """The largest share among the float32 cases of usual size, with a margin, to one digit."""
    known = {cell.name: cell for cell in cells(op, profile="cpu")}
    shares = [
        share
        for result in verdict.cells
        if result.role != "capability" and result.name in known
        for share in _share(op, known[result.name], result, verdict.seed or 0)
    ]
    wanted = _MARGIN * max(shares) if shares else UNKNOWN
    return float(f"{min(max(wanted, LEAST), MOST):.0e}")


def own_tolerance(cases: Iterable[Cell], verdict: Verdict) -> float:
    """The tolerance for a user's own reference, whose plain cases have answers of about one."""
    plain = {
        cell.name
        for cell in cases
        if cell.name.endswith("-given") and {one.dtype for one in cell.outputs} == {"float32"}
    }
    budgets = [one.budget for one in verdict.cells if one.name in plain and one.budget is not None]
    return float(f"{min(max([*budgets, UNKNOWN]), MOST):.0e}")


def _share(op: Op, cell: Cell, result: CellResult, seed: int) -> Iterable[float]:
    """The budget as a share of a usual row's largest output; None if that number means nothing."""
    usual = cell.values in ("normal", "mixed", "sorted") and set(cell.scales) == {1.0}
    small = prod(cell.inputs[0].shape) <= _MOST_ELEMENTS
    if result.budget is None or cell.outputs[0].dtype != "float32" or not (usual and small):
        return
    from referee.ops.eager import eager
    from referee.ops.values import draw

    answer = eager(op)(*draw(cell, seed)).abs()
    largest = answer.amax(-1) if answer.dim() > 1 else answer.max()
    row = float(largest.median())
    if 0.0 < row < float("inf"):
        yield result.budget / row
