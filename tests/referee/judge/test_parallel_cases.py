"""The CPU path in several processes: cells are told of in their order, whichever process comes
first to its end.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from referee import Referee, TaskName
from referee.asked_shape import feasible
from referee.candidate import Traced
from referee.cases import CaseData
from referee.concurrency import split_by_cost
from referee.cpu_path import PARTS, CpuPath
from referee.interpreter.interpret import execute
from referee.problem import Problem, required
from referee.reading.kernels import extract
from referee.sandbox.zygote import Workers, ZygoteError
from referee.sandbox.zygote_job import Outcome
from referee.target import Target
from referee.tracing.trace import trace
from tests.referee.stand_in import SOURCE, Servers

NOTHING = """import torch


def silu(x):
    return torch.nn.functional.silu(x)


EXAMPLES = [[torch.empty(0, 8)], [torch.randn(3, 8)]]
"""
ADDS = "tl.store(y_ptr + at, x * tl.sigmoid(x)"


def wrong_at(*totals: int) -> str:
    """A kernel that gives another answer to inputs of these numbers of elements."""
    return SOURCE.replace(
        ADDS, f"{ADDS} + ({' | '.join(f'(total == {total})' for total in totals)})"
    )


def endless_at(source: str, total: int) -> str:
    """The kernel with a loop that ends at none of these."""
    return source.replace(
        "    tl.store", f"    while total == {total}:\n        x += 0.0\n    tl.store"
    )


def path_and_cells(servers: Servers, source: str) -> tuple[CpuPath, Traced]:
    problem, module = Problem("silu"), extract(source)
    cells = [cell for cell in required(problem.cells("cpu")) if feasible(cell)]
    plans = trace(servers.workers, source, cells, Target(), module)
    assert isinstance(plans, tuple), plans
    data = CaseData(problem.task("cpu"), 3)
    path = CpuPath(
        workers=servers.interpreters, data=data, text=module.text, atomic=False, seconds=60.0
    )
    return path, list(zip(cells, plans, strict=True))


def totals(servers: Servers) -> list[int]:
    """How many elements the cells have, in order, each number once."""
    return list(
        dict.fromkeys(prod(cell.inputs[0].shape) for cell, _ in path_and_cells(servers, SOURCE)[1])
    )


@pytest.mark.parametrize(
    ("efforts", "sizes"),
    [
        ([1.0] * 8, [2, 2, 2, 2]),
        ([1.0, 1.0, 6.0, 1.0, 1.0], [2, 1, 2]),
        ([5.0, 1.0], [1, 1]),
        ([2.0], [1]),
        ([], []),
    ],
)
def test_parts_are_of_about_the_same_effort_and_in_order(
    efforts: list[float], sizes: list[int]
) -> None:
    cells: list[Any] = [(number, None) for number in range(len(efforts))]
    found = split_by_cost(efforts, cells, PARTS)
    assert [len(part) for part in found] == sizes and len(found) <= PARTS
    assert [one for part in found for one in part] == cells


def test_named_cells_run_once_and_take_half_as_long(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, traced = path_and_cells(servers, SOURCE)
    asked: list[int] = []

    def noted(*given: Any, **options: Any) -> Any:
        asked.append(len(given[2]))
        return execute(*given, **options)

    monkeypatch.setattr("referee.cpu_path.execute", noted)
    some = [pair for pair in traced if pair[0].inputs[0].shape[0] < 20][:7]
    once = replace(path, once=frozenset(cell.name for cell, _ in some[3:]))
    assert path.required(some, among=traced) == once.required(some, among=traced)
    assert asked[0] - asked[1] == 4, (
        "the first of each dtype stands for others, and runs again in any case"
    )
    assert all(path.effort(*pair) == (1 + (pair in some[3:])) * once.effort(*pair) for pair in some)


@pytest.mark.parametrize("places", [(), (-1,), (3, -1), (0,)])
def test_what_is_told_is_what_one_process_tells(servers: Servers, places: tuple[int, ...]) -> None:
    sizes = totals(servers)
    source = wrong_at(*(sizes[place] for place in places)) if places else SOURCE
    path, traced = path_and_cells(servers, source)
    results, rejection = path.required_in_parallel(traced)
    assert (results, rejection) == path.required(traced)
    assert [result.name for result in results] == [cell.name for cell, _ in traced]
    assert (rejection.guard if rejection else None) == ("wrong_answer" if places else None)


def test_a_failure_ends_what_runs_behind_it(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = totals(servers)
    path, traced = path_and_cells(servers, endless_at(wrong_at(sizes[0]), sizes[-1]))
    outcomes: list[Outcome] = []
    run = servers.interpreters.run

    def noted(*given: Any, **named: Any) -> Outcome:
        outcomes.append(run(*given, **named))
        return outcomes[-1]

    monkeypatch.setattr(servers.interpreters, "run", noted)
    results, rejection = path.required_in_parallel(traced)
    assert rejection and rejection.guard == "wrong_answer" and traced[0][0].name in rejection.reason
    assert [result.status for result in results] == ["fail", *["skipped"] * (len(traced) - 1)]
    assert {outcome.detail for outcome in outcomes if outcome.status != "ok"} <= {"stopped"}


def test_what_goes_wrong_with_the_workers_is_told(servers: Servers) -> None:
    path, traced = path_and_cells(servers, SOURCE)
    with Workers(interpret=True) as closed:
        pass
    with pytest.raises(ZygoteError, match="closed"):
        replace(path, workers=closed).required_in_parallel(traced)


def test_cells_without_elements_are_judged_too(referee: Referee, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(NOTHING)
    launches = SOURCE.replace(
        "    BLOCK = 256\n", "    if x.numel() == 0:\n        return y\n    BLOCK = 256\n"
    )
    verdict = referee.judge(launches, TaskName("silu", str(tmp_path / "reference.py")))
    assert verdict.verdict == "correct" and verdict.cells, verdict
