"""What a timing verdict says when a baseline is missing."""

from __future__ import annotations

import pytest

from referee.measurement import AUTOTUNE, BARS, COMPILE, EAGER, GRAPHED
from referee.stats import Decision, Interval
from referee.timing import decided


def found(ratio: float) -> Interval:
    return Interval(ratio, ratio - 0.002, ratio + 0.002, 0.95, 60, 4)


@pytest.mark.parametrize("name", [COMPILE, AUTOTUNE, EAGER])
def test_nothing_wins_while_a_baseline_that_may_be_the_bar_is_missing(name: str) -> None:
    bar = next(other for other in BARS if other != name)
    decision, reason = decided(found(1.5), bar, {name: "RuntimeError: no C compiler"})
    assert decision == "unsure"
    assert reason == f"faster than {bar}, but not every baseline could be built ({name}: RuntimeError: no C compiler)"


@pytest.mark.parametrize(("ratio", "decision"), [(1.5, "win"), (1.0, "tie"), (0.9, "loss"), (1.01, "unsure")])
def test_the_baseline_that_is_only_shown_may_be_missing(ratio: float, decision: Decision) -> None:
    assert decided(found(ratio), EAGER, {GRAPHED: "out of memory"}) == (decision, "")


@pytest.mark.parametrize(("ratio", "decision"), [(1.0, "tie"), (0.9, "loss")])
def test_what_is_no_win_stays_so_without_a_baseline(ratio: float, decision: Decision) -> None:
    assert decided(found(ratio), EAGER, {COMPILE: "out of memory"}) == (decision, "")


def test_without_any_figure_the_reason_says_what_is_absent() -> None:
    assert decided(None, None, {EAGER: "x", COMPILE: "y"}) == ("unsure", "no baseline could be built")
    assert decided(None, EAGER, {}) == ("unsure", "no block of rounds was usable")
    assert decided(None, None, {}) == ("unsure", "no block of rounds was usable")
