"""Capability cells that cannot be prepared: what each of them gets, and how long all of them may take."""

from __future__ import annotations

import re
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from referee import badges, judgement
from referee.badges import LEAST_SECONDS, each_badge
from referee.judgement import Judgement
from referee.ops.spec import Cell
from referee.reading.kernels import extract
from referee.report import Report
from referee.sandbox.workers import Workers
from referee.subject import Subject, capabilities
from referee.target import Target
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


def prepared(monkeypatch: pytest.MonkeyPatch, attempts: Attempts, cells: list[Cell]) -> tuple[list[str], dict[str, str]]:
    monkeypatch.setattr(badges, "time", SimpleNamespace(monotonic=lambda: attempts.now))
    made, results = each_badge(attempts, cells, cells, 20.0)
    return made, {result.name: result.status for result in results}


def test_what_can_be_prepared_is_prepared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts()
    assert prepared(monkeypatch, attempts, CELLS) == ([cell.name for cell in CELLS], {})
    assert len(attempts.asked) == 1
    assert prepared(monkeypatch, attempts, []) == ([], {})
    assert prepared(monkeypatch, Attempts(wrong=["cell0"]), CELLS[:1]) == ([], {"cell0": "fail"})


def test_one_that_fails_or_hangs_costs_only_its_own_badge(monkeypatch: pytest.MonkeyPatch) -> None:
    for attempts in (Attempts(wrong=["cell2"]), Attempts(hanging=["cell2"])):
        made, results = prepared(monkeypatch, attempts, CELLS)
        assert made == [cell.name for cell in CELLS if cell.name != "cell2"]
        assert results == {"cell2": "fail"}


def test_those_that_hang_share_the_time_and_what_is_not_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(hanging=[cell.name for cell in CELLS])
    made, results = prepared(monkeypatch, attempts, CELLS)
    assert not made and attempts.now <= 120.0
    assert [seconds for _, seconds in attempts.asked] == pytest.approx([10.0, 5.0, 2.5, 1.2], abs=0.1)
    assert all(seconds >= LEAST_SECONDS for _, seconds in attempts.asked)
    assert list(results.values()) == ["fail"] * 3 + ["skipped"] * 5


def test_python_that_hangs_at_every_capability_is_given_no_more_than_the_time_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "CAPABILITY_TRACE_SECONDS", 6.0)
    cells = capabilities(Subject("silu").cells("gpu"))
    workers = Workers()
    with workers:
        assert workers.protections, "it has started"
        made = Judgement(Report("silu", "replay", 1, environment={}), HANGS, Subject("silu"), Target(), workers, None)
        traced, results = made.trace_capabilities(extract(HANGS), cells)
    assert not traced and [result.name for result in results] == [cell.name for cell in cells]
    # On a busy machine the first attempt, at all of them, may have taken longer than it was given.
    tried = [result for result in results if result.status == "fail"]
    assert [result.status for result in results] == ["fail"] * len(tried) + ["skipped"] * (len(cells) - len(tried)) and len(tried) < 2
    within = [re.search(r"took too long.*\(no result within ([\d.]+) s\)", result.detail) for result in tried]
    assert all(match is not None and 0.0 < float(match[1]) <= 1.5 for match in within)
    assert "not tried" in results[1].detail
