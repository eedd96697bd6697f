"""What a timing verdict says when a baseline is missing, when measuring may stop, and who is
measured when.
"""

from __future__ import annotations

import itertools
from math import inf

import numpy as np
import pytest

from referee.timing.decision import SETTLED, decided, enough, firm, stays_unsure
from referee.timing.measurement import AUTOTUNE, BARS, COMPILE, EAGER, GRAPHED, TimingOptions
from referee.timing.pace import FEWER, few, shares
from referee.timing.stats import LEAST_BLOCKS, LEAST_ROUNDS, Decision, Interval, decide, interval


def found(ratio: float, rounds: int = 240) -> Interval:
    return Interval(ratio, ratio - 0.002, ratio + 0.002, 0.95, rounds, 6)


@pytest.mark.parametrize("name", [COMPILE, AUTOTUNE, EAGER])
def test_nothing_wins_while_a_possible_bar_is_missing(name: str) -> None:
    bar = next(other for other in BARS if other != name)
    decision, reason = decided(found(1.5), bar, {name: "RuntimeError: no C compiler"})
    assert decision == "unsure"
    assert (
        reason
        == f"faster than {bar}, but not every baseline could be timed ({name}: RuntimeError: no C compiler)"
    )


@pytest.mark.parametrize(
    ("ratio", "decision"), [(1.5, "win"), (1.0, "tie"), (0.9, "loss"), (1.01, "unsure")]
)
def test_the_baseline_that_is_only_shown_may_be_missing(ratio: float, decision: Decision) -> None:
    assert decided(found(ratio), EAGER, {GRAPHED: "out of memory"}) == (decision, "")


@pytest.mark.parametrize(("ratio", "decision"), [(1.0, "tie"), (0.9, "loss")])
def test_what_is_no_win_stays_so_without_a_baseline(ratio: float, decision: Decision) -> None:
    assert decided(found(ratio), EAGER, {COMPILE: "out of memory"}) == (decision, "")


def test_without_any_figure_the_reason_says_what_is_absent() -> None:
    assert decided(None, None, {EAGER: "x", COMPILE: "y"}) == (
        "unsure",
        "no baseline could be built",
    )
    assert decided(None, EAGER, {}) == ("unsure", "no block of rounds was usable")
    assert decided(None, None, {}) == ("unsure", "no block of rounds was usable")


@pytest.mark.parametrize(("ratio", "rounds", "stops"), [
    (1.5, 240, True), (0.9, 240, True), (1.0, 240, True), (1.5, 215, False), (0.9, 215, False), (1.0, 215, False),
    (1.0115, 400, False), (1.0112, 400, True), (1.01, 400, True), (1.0088, 400, True), (1.0085, 400, False),
    (0.9885, 400, False), (0.9900, 400, True), (1.01, 383, False), (1.01, 384, True), (1.01, 240, False),
])  # fmt: skip
def test_only_settled_ratios_end_measuring_early(ratio: float, rounds: int, stops: bool) -> None:
    assert (
        enough(found(ratio, rounds), found(ratio, rounds), TimingOptions(least_rounds=240)) is stops
    )


def test_a_stop_at_a_border_hardly_ever_loses_a_decision() -> None:
    generator = np.random.default_rng(5)
    stopped = decided_later = 0
    for ratio in (*np.linspace(0.985, 0.995, 150), *np.linspace(1.005, 1.015, 150)):
        blocks = list(np.log(ratio) + 0.022 * generator.standard_normal((12, 40)))
        early, settled = interval(blocks[:10]), interval(blocks[:10], confidence=SETTLED)
        if decide(settled) == "unsure" and stays_unsure(early, 480):
            stopped += 1
            decided_later += decide(interval(blocks)) != "unsure"
    assert stopped > 30 and decided_later <= 0.05 * stopped


@pytest.mark.parametrize(("low", "high", "stops"), [
    (1.1, 1.1105, True), (1.1, 1.112, False), (0.5, 0.5049, True), (0.5, 0.506, False), (0.0, inf, False),
])  # fmt: skip
def test_a_ratio_must_be_well_known_before_measuring_ends(
    low: float, high: float, stops: bool
) -> None:
    ratio = Interval(low, low, high, 0.95, 320, 8)
    assert (
        enough(ratio, found(1.5 if low > 1 else 0.5, 320), TimingOptions(most_width=0.01)) is stops
    )


@pytest.mark.parametrize(("decision", "settled", "rounds", "becomes"), [
    ("win", 1.5, 216, "win"), ("win", 1.5, 215, "unsure"), ("loss", 0.9, 215, "loss"), ("loss", 0.991, 215, "unsure"),
    ("loss", 0.991, 216, "loss"), ("tie", 1.0, 80, "tie"), ("unsure", 1.01, 80, "unsure"),
])  # fmt: skip
def test_a_win_needs_its_rounds_an_early_loss_must_be_settled(
    decision: Decision, settled: float, rounds: int, becomes: Decision
) -> None:
    told, reason = firm(decision, found(settled, rounds), 240)
    assert told == becomes
    assert bool(reason) is (decision in ("win", "loss") and rounds < 216)
    assert not reason or f"after {rounds} usable rounds of the 240" in reason


@pytest.mark.parametrize("dropped", list(itertools.product((False, True), repeat=4)))
def test_the_floor_has_an_interval_as_soon_as_measuring_may_stop(dropped: tuple[bool, ...]) -> None:
    """Whichever blocks are dropped, and also where two have to do. The first block only warms up."""
    with_floor = counted = 0
    for number, lost in enumerate((*dropped, *[False] * LEAST_BLOCKS), start=2):
        if not lost:
            with_floor += few(number, counted) >= LEAST_ROUNDS
            counted += 1
        assert with_floor >= min(counted, LEAST_BLOCKS)


@pytest.mark.parametrize(("medians", "others", "expected"), [
    ({}, 20, {}),
    ({EAGER: 9.0, COMPILE: 1.04, AUTOTUNE: 1.0}, 20, {EAGER: FEWER, COMPILE: 40, AUTOTUNE: 40}),
    ({EAGER: 9.0, COMPILE: 1.9, AUTOTUNE: 1.0}, 2, {EAGER: 2, COMPILE: 2, AUTOTUNE: 40}),
    ({EAGER: 2.1, COMPILE: 1.9, AUTOTUNE: 1.0}, 20, {EAGER: FEWER, COMPILE: 20, AUTOTUNE: 40}),
    ({EAGER: 9.0, COMPILE: 1.04, AUTOTUNE: 1.0}, 0, {COMPILE: 40, AUTOTUNE: 40}),
    ({EAGER: 1.0, COMPILE: 1.06, AUTOTUNE: 1.2}, 0, {EAGER: 40}),
    ({EAGER: 1.0, COMPILE: inf}, 20, {EAGER: 40, COMPILE: 20}),
    ({EAGER: inf, COMPILE: inf, GRAPHED: inf}, 20, {EAGER: 40, COMPILE: 40, GRAPHED: 40}),
    ({EAGER: 1.0, GRAPHED: 0.5}, 0, {EAGER: 40, GRAPHED: 40}),
    ({EAGER: 1.0, COMPILE: 2.0}, 60, {EAGER: 40, COMPILE: 40}),
    ({EAGER: 30_000.0, COMPILE: 1.0, AUTOTUNE: 1.0}, 20, {EAGER: 3, COMPILE: 40, AUTOTUNE: 40}),
    ({EAGER: 30_000.0, COMPILE: 1.0}, 0, {COMPILE: 40}),
])  # fmt: skip
def test_who_may_be_the_bar_is_in_every_round(
    medians: dict[str, float], others: int, expected: dict[str, int]
) -> None:
    assert shares(medians, 40, others) == expected
