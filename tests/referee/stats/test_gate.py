"""What a set of fresh runs amounts to."""

from __future__ import annotations

import pytest

from referee.gate import GateRun, report
from referee.timing.stats import Interval


def run(low: float, ratio: float) -> GateRun:
    return GateRun(
        seed=1,
        decision="win" if low > 1.01 else "unsure",
        bar="compile",
        ratio=Interval(ratio, low, ratio + 0.1, 0.95, 60, 6),
        candidate_us=10.0,
        bar_us=10.0 * ratio,
    )


def test_every_interval_above_one_is_stable() -> None:
    found = report((run(1.05, 1.1), run(1.02, 1.1), run(1.001, 1.1)), 3)
    assert found.stable
    assert found.ratio == pytest.approx(1.1)
    assert found.spread == pytest.approx(0.0)


def test_one_interval_that_touches_one_is_not_stable() -> None:
    found = report((run(1.05, 1.2), run(1.0, 1.0), run(1.05, 1.2)), 3)
    assert not found.stable
    assert "2 of 3" in found.reason
    assert found.spread == pytest.approx(0.2)


def test_a_rejection_ends_it_and_says_why() -> None:
    rejected = GateRun(
        seed=1,
        decision=None,
        bar=None,
        ratio=None,
        candidate_us=None,
        bar_us=None,
        reason="rejected by wrong_answer: row 3",
    )
    found = report((run(1.05, 1.1), rejected), 3)
    assert not found.stable
    assert found.reason == rejected.reason
    assert report((rejected,), 3).ratio is None


def test_missing_runs_are_not_stable() -> None:
    assert not report((run(1.05, 1.1),), 5).stable
