"""Capability cells that cannot be prepared: what each of them gets, and how long all of them may
take.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from referee.candidate import Candidate
from referee.checks import capabilities as capability_checks
from referee.checks.capabilities import LEAST_SECONDS, prepare_capabilities, trace_capabilities
from referee.ops.spec import Cell
from referee.problem import Problem, capabilities
from referee.reading.kernels import extract
from referee.report import Report
from referee.sandbox.zygote import Workers
from referee.verdict import Rejection

CELLS = [Cell(f"cell{number}", (), (), "normal", (), "capability") for number in range(8)]
HUNG = Rejection("trace", "timeout", "took too long")
WRONG = Rejection("trace", "trace_error", "cannot be traced")
HANGS = """@triton.jit
def _silu(x_ptr, y_ptr):
    pass


def run(x):
    while True:
        pass
"""


class Attempts:
    """Cells by name hang for all the time they are given, or are wrong at once; `now` is the clock."""

    def __init__(self, hanging: Collection[str] = (), wrong: Collection[str] = ()) -> None:
        self.hanging, self.wrong, self.now = hanging, wrong, 100.0
        self.asked: list[tuple[list[str], float]] = []

    def __call__(self, cells: list[Cell], seconds: float) -> list[str] | Rejection:
        names = [cell.name for cell in cells]
        self.asked.append((names, seconds))
        if set(names) & set(self.hanging):
            self.now += seconds
            return HUNG
        return WRONG if set(names) & set(self.wrong) else names


def prepared(
    monkeypatch: pytest.MonkeyPatch, attempts: Attempts, cells: list[Cell]
) -> tuple[list[str], dict[str, str]]:
    monkeypatch.setattr(capability_checks, "time", SimpleNamespace(monotonic=lambda: attempts.now))
    made, results = prepare_capabilities(attempts, cells, cells, 20.0)
    return made, {result.name: result.status for result in results}


def test_what_can_be_prepared_is_prepared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts()
    assert prepared(monkeypatch, attempts, CELLS) == ([cell.name for cell in CELLS], {})
    assert len(attempts.asked) == 1
    assert prepared(monkeypatch, attempts, []) == ([], {})
    assert prepared(monkeypatch, Attempts(wrong=["cell0"]), CELLS[:1]) == ([], {"cell0": "fail"})


def test_one_that_fails_or_hangs_costs_only_its_own_badge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes any case slow, so time that ran out is no failure."""
    tries = {"fail": Attempts(wrong=["cell2"]), "skipped": Attempts(hanging=["cell2"])}
    for status, attempts in tries.items():
        made, results = prepared(monkeypatch, attempts, CELLS)
        assert made == [cell.name for cell in CELLS if cell.name != "cell2"]
        assert results == {"cell2": status}


def test_hanging_capabilities_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(hanging=[cell.name for cell in CELLS])
    made, results = prepared(monkeypatch, attempts, CELLS)
    assert not made and attempts.now <= 120.0
    assert [seconds for _, seconds in attempts.asked] == pytest.approx(
        [10.0, 5.0, 2.5, 1.2], abs=0.1
    )
    assert all(seconds >= LEAST_SECONDS for _, seconds in attempts.asked)
    assert list(results.values()) == ["skipped"] * 8


def test_python_that_hangs_everywhere_gets_the_shared_time_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capability_checks, "TRACE_SECONDS", 6.0)
    cells = capabilities(Problem("silu").cells("gpu"))
    workers = Workers()
    with workers:
        assert workers.protections, "it has started"
        candidate = Candidate(
            report=Report("silu", "replay", 1, environment={}),
            workers=workers,
            cache=None,
            source=HANGS,
            problem=Problem("silu"),
            module=extract(HANGS),
            strict=True,
        )
        traced, results = trace_capabilities(candidate, cells)
    assert not traced and [result.name for result in results] == [cell.name for cell in cells]
    # On a busy machine the first attempt, at all of them, may have taken longer than it was given.
    tried = [result for result in results if "not tried" not in result.detail]
    assert tried == list(results[: len(tried)]) and len(tried) < 2
    assert {(one.status, one.guard) for one in results} == {("skipped", "timeout")}
    within = [
        re.search(r"took too long.*\(no result within ([\d.]+) s\)", result.detail)
        for result in tried
    ]
    assert all(match is not None and 0.0 < float(match[1]) <= 1.5 for match in within)
    assert "not tried" in results[1].detail
