"""Cells that are checked as they become ready give the answer of cells checked in their own order. The replayer is a stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.checking import Checking
from referee.gpu import Checked, unreached
from referee.jobs import CellJob, Prepared, TaskName
from referee.ops.spec import Cell
from referee.verdict import CellResult, Check, Rejection

CELLS = tuple(Cell(f"cell{number}", (), (), "normal", (), "bench" if number == 0 else "required") for number in range(8))
CANDIDATE = Prepared(TaskName("relu2"), (), atomics=True)
SEED = 7


@dataclass
class Replayer:
    """Fails the cells named, as the real one does: nothing behind the first failure of a request is reached."""

    failing: frozenset[str]
    asked: list[list[str]] = field(default_factory=list)

    def check(self, prepared: Prepared, *, seed: int) -> Checked:
        assert (prepared.task, prepared.atomics, seed) == (CANDIDATE.task, True, SEED)
        cells = [job.cell for job in prepared.jobs]
        self.asked.append([cell.name for cell in cells])
        first = next((number for number, cell in enumerate(cells) if cell.name in self.failing), len(cells))
        results = [CellResult(cell.name, cell.role, "pass") for cell in cells[:first]]
        rejection = None
        if first < len(cells):
            results.append(CellResult(cells[first].name, cells[first].role, "fail", detail="wrong"))
            rejection = Rejection("correct", "wrong_answer", f"at {cells[first].name}")
        results += [unreached(cell) for cell in cells[first + 1 :]]
        checks = (Check("wrong_answer", "fail" if rejection else "pass", rejection.reason if rejection else "agree"),)
        return Checked(tuple(results), rejection, checks, {result.name: 0.1 for result in results if result.status != "skipped"})


def jobs(numbers: Sequence[int]) -> dict[int, CellJob]:
    return {number: CellJob(CELLS[number], cast("Any", None), {}) for number in numbers}


def taken(parts: Sequence[Sequence[int]], failing: frozenset[str]) -> tuple[Checked, Replayer]:
    replayer = Replayer(failing)
    checking = Checking(cast("Any", replayer), CANDIDATE, CELLS, seed=SEED)
    for part in parts:
        checking.take(jobs(part))
    return checking.found(), replayer


@st.composite
def partitions(draw: st.DrawFn) -> list[list[int]]:
    order = draw(st.permutations(range(len(CELLS))))
    cuts = sorted(draw(st.sets(st.integers(1, len(CELLS) - 1))))
    return [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(CELLS)], strict=True)]


@given(partitions(), st.frozensets(st.sampled_from([cell.name for cell in CELLS]), max_size=3))
def test_the_order_of_arrival_changes_nothing_but_the_seconds(parts: list[list[int]], failing: frozenset[str]) -> None:
    found, replayer = taken(parts, failing)
    expected, _ = taken([range(len(CELLS))], failing)
    assert (found.cells, found.rejection, found.checks) == (expected.cells, expected.rejection, expected.checks)
    asked = [name for names in replayer.asked for name in names]
    assert len(asked) == len(set(asked))


def test_nothing_behind_a_failure_is_checked_and_everything_ahead_is() -> None:
    found, replayer = taken([[5, 6], [7], [1, 0]], frozenset({"cell5"}))
    assert replayer.asked == [["cell5", "cell6"], ["cell0", "cell1"]]
    assert [cell.status for cell in found.cells] == ["pass", "pass", "skipped", "skipped", "skipped", "fail", "skipped", "skipped"]
    assert found.rejection == Rejection("correct", "wrong_answer", "at cell5")


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[0], [1, 2, 3]]])
def test_a_rejection_that_names_no_cell_is_kept(parts: list[list[int]]) -> None:
    class Odd(Replayer):
        def check(self, prepared: Prepared, *, seed: int) -> Checked:
            return Checked(super().check(prepared, seed=seed).cells, Rejection("correct", "autotune", "somewhere"), ())

    checking = Checking(cast("Any", Odd(frozenset())), CANDIDATE, CELLS, seed=SEED)
    for part in parts:
        checking.take(jobs(part))
    assert checking.found().rejection == Rejection("correct", "autotune", "somewhere")
