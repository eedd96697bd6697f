"""Cells that are checked as they become ready give the answer of cells checked in the order that
was fixed. The replayer is a stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from referee.gpu.jobs import Checked, CompiledCandidate, ReplayJob
from referee.gpu.ordered_check import OrderedCheck
from referee.ops.spec import Cell
from referee.problem import TaskName
from referee.verdict import Rejection
from tests.referee.stand_in import checked

CELLS = tuple(
    Cell(f"cell{number}", (), (), "normal", (), "bench" if number == 0 else "required")
    for number in range(8)
)
CANDIDATE = CompiledCandidate(TaskName("relu2"), (), atomics=True)
SEED = 7


@dataclass
class Replayer:
    """Fails the cells named, and notes what it was asked."""

    failing: frozenset[str]
    asked: list[list[str]] = field(default_factory=list)

    def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
        assert (prepared.task, prepared.atomics, seed) == (CANDIDATE.task, True, SEED)
        cells = [job.cell for job in prepared.jobs]
        self.asked.append([cell.name for cell in cells])
        return checked(cells, self.failing)


def jobs(numbers: Sequence[int]) -> dict[int, ReplayJob]:
    return {number: ReplayJob(CELLS[number], cast("Any", None), {}) for number in numbers}


def taken(
    parts: Sequence[Sequence[int]],
    failing: frozenset[str],
    order: Sequence[int] = range(len(CELLS)),
) -> tuple[Checked, Replayer]:
    replayer = Replayer(failing)
    checking = OrderedCheck(cast("Any", replayer), CANDIDATE, CELLS, order, seed=SEED)
    for part in parts:
        checking.take(jobs(part))
    return checking.found(), replayer


orders = st.permutations(range(len(CELLS)))


@st.composite
def partitions(draw: st.DrawFn) -> list[list[int]]:
    order = draw(orders)
    cuts = sorted(draw(st.sets(st.integers(1, len(CELLS) - 1))))
    return [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(CELLS)], strict=True)]


@given(
    partitions(), orders, st.frozensets(st.sampled_from([cell.name for cell in CELLS]), max_size=3)
)
def test_the_order_of_arrival_changes_nothing(
    parts: list[list[int]], order: list[int], failing: frozenset[str]
) -> None:
    found, replayer = taken(parts, failing, order)
    expected, _ = taken([range(len(CELLS))], failing, order)
    assert found == expected
    asked = [name for names in replayer.asked for name in names]
    assert asked == [CELLS[number].name for number in order][: len(asked)]
    assert not any(failing & set(names) for names in replayer.asked[:-1])


def test_cells_wait_for_earlier_ones_and_stop_at_a_failure() -> None:
    found, replayer = taken([[2, 5], [6], [0], [1], [3, 4, 7]], frozenset({"cell1"}))
    assert replayer.asked == [["cell0"], ["cell1", "cell2"]]
    assert [cell.status for cell in found.cells] == ["pass", "fail"] + ["skipped"] * 6
    assert found.rejection == Rejection("correct", "wrong_answer", "at cell1: wrong")
    assert found.seconds == {"cell0": 0.1, "cell1": 0.1}


def test_a_rejection_that_names_no_cell_is_kept() -> None:
    class Odd(Replayer):
        def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
            return Checked(
                super().check(prepared, seed=seed).cells,
                Rejection("correct", "autotune", "somewhere"),
                (),
            )

    replayer = Odd(frozenset())
    checking = OrderedCheck(cast("Any", replayer), CANDIDATE, CELLS, range(len(CELLS)), seed=SEED)
    checking.take(jobs([0]))
    checking.take(jobs(range(1, len(CELLS))))
    assert checking.found().rejection == Rejection("correct", "autotune", "somewhere")
    assert replayer.asked == [["cell0"]]
