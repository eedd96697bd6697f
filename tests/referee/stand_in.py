"""What the replay worker answers when it is asked to check cells, for tests that replace it: the cells named fail."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from referee.gpu import Checked, unreached
from referee.ops.spec import Cell
from referee.verdict import CellResult, Check, Rejection


def checked(cells: Sequence[Cell], failing: Collection[str]) -> Checked:
    """One request's answer: nothing behind the first failure is reached, and every cell that is takes a tenth of a second."""
    first = next((number for number, cell in enumerate(cells) if cell.name in failing), len(cells))
    results = [CellResult(cell.name, cell.role, "pass") for cell in cells[:first]]
    rejection = None
    if first < len(cells):
        results.append(CellResult(cells[first].name, cells[first].role, "fail", detail="wrong"))
        rejection = Rejection("correct", "wrong_answer", f"at {cells[first].name}: wrong")
    checks = (Check("wrong_answer", "fail" if rejection else "pass", rejection.reason if rejection else "agree"),)
    seconds = {result.name: 0.1 for result in results}
    return Checked((*results, *map(unreached, cells[first + 1 :])), rejection, checks, seconds)
