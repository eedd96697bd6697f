"""The verdict statistics against simulated measurements with known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.timing import stats

ROUNDS = 10


def simulate(
    generator: np.random.Generator, blocks: int, slowdown: float, placement: float = 0.002
) -> tuple[stats.Floats, ...]:
    """Log-ratios of a candidate `slowdown` times slower than its bar, with the noise seen on a real
    GPU.

    Shared drift, placement effects per block and entry, 1 % jitter, 2 % outliers of 20 %, and a 32
    ns event clock.
    """
    drift = (
        40.0
        * np.exp(generator.normal(0, 0.01, (blocks, 1)))
        * np.exp(generator.normal(0, 0.003, (blocks, ROUNDS)))
    )

    def times(factor: float) -> stats.Floats:
        noise = np.exp(
            generator.normal(0, placement, (blocks, 1))
            + generator.normal(0, 0.01, (blocks, ROUNDS))
        )
        spikes = 1 + np.where(
            generator.random((blocks, ROUNDS)) < 0.02,
            generator.exponential(0.2, (blocks, ROUNDS)),
            0,
        )
        return np.asarray(
            np.round(drift * factor * noise * spikes / 0.032) * 0.032, dtype=np.float64
        )

    return stats.log_ratios(tuple(times(slowdown)), tuple(times(1.0)))


def verdicts(slowdown: float, blocks: int, trials: int, seed: int) -> list[stats.Decision]:
    generator = np.random.default_rng(seed)
    return [
        stats.decide(stats.interval(simulate(generator, blocks, slowdown), resamples=300))
        for _ in range(trials)
    ]


def test_a_twin_almost_never_wins() -> None:
    found = verdicts(1.0, blocks=6, trials=400, seed=1)
    assert found.count("win") <= 2
    assert found.count("loss") <= 2


@pytest.mark.parametrize("slowdown", [1.02, 1.05])
def test_planted_slowdowns_are_losses(slowdown: float) -> None:
    assert verdicts(slowdown, blocks=12, trials=100, seed=2).count("loss") >= 95


def test_planted_speedup_is_a_win() -> None:
    assert verdicts(1 / 1.03, blocks=12, trials=100, seed=3).count("win") >= 95


def test_enough_rounds_call_a_twin_a_tie() -> None:
    assert verdicts(1.0, blocks=16, trials=100, seed=4).count("tie") >= 95


@pytest.mark.parametrize("blocks", [4, 8, 16])
def test_the_interval_covers_the_truth_as_often_as_it_claims(blocks: int) -> None:
    generator = np.random.default_rng(blocks)
    hits = 0
    for _ in range(300):
        found = stats.interval(simulate(generator, blocks, 1.0, placement=0.003), resamples=300)
        hits += found.low <= 1.0 <= found.high
    assert hits >= 0.90 * 300


def test_dropped_rounds_are_left_out() -> None:
    mine, theirs = np.array([1.0, np.nan, 2.0, 4.0]), np.array([2.0, 5.0, np.nan, 8.0])
    (block,) = stats.log_ratios([mine], [theirs])
    assert np.allclose(np.exp(block), [2.0, 2.0])


def test_too_little_data_is_unsure() -> None:
    found = stats.interval([np.full(50, 0.5)])
    assert (found.low, found.high, found.blocks) == (0.0, math.inf, 1)
    assert stats.decide(found) == "unsure"
    assert stats.decide(stats.interval([])) == "unsure"


def test_the_same_samples_give_the_same_interval() -> None:
    blocks = simulate(np.random.default_rng(5), 6, 1.01)
    assert stats.interval(blocks) == stats.interval(blocks)


def test_outliers_do_not_move_the_ratio() -> None:
    blocks = simulate(np.random.default_rng(6), 8, 1.0)
    spoiled = [block.copy() for block in blocks]
    for block in spoiled[::2]:
        block[0] += 5.0
    assert abs(stats.interval(spoiled).ratio - stats.interval(blocks).ratio) < 0.005
    for block in spoiled[1::2]:
        block[0] += 5.0
    assert stats.decide(stats.interval(spoiled)) == "unsure", (
        "as many as are cut off at either end, besides those that were there"
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.011, 1.2, "win"),
        (0.8, 0.989, "loss"),
        (0.99, 1.01, "tie"),
        (0.995, 1.02, "unsure"),
        (0.98, 1.0, "unsure"),
        (0.9, 1.1, "unsure"),
        (1.005, 1.02, "unsure"),
    ],
)
def test_decisions_at_the_edges(low: float, high: float, expected: str) -> None:
    assert stats.decide(stats.Interval(1.0, low, high, 0.95, 60, 6)) == expected


log_ratio_blocks = st.lists(
    st.lists(st.floats(-2, 2), min_size=3, max_size=12).map(
        lambda values: np.array(values, dtype=np.float64)
    ),
    min_size=2,
    max_size=6,
)


@given(log_ratio_blocks, st.floats(-1, 1))
def test_scaling_one_side_scales_the_interval(blocks: list[stats.Floats], shift: float) -> None:
    before = stats.interval(blocks, resamples=50)
    after = stats.interval([block + shift for block in blocks], resamples=50)
    for old, new in (
        (before.ratio, after.ratio),
        (before.low, after.low),
        (before.high, after.high),
    ):
        assert math.isclose(new, old * math.exp(shift), rel_tol=1e-9)


@given(log_ratio_blocks)
def test_a_wider_confidence_contains_a_narrower_one(blocks: list[stats.Floats]) -> None:
    wide, narrow = (
        stats.interval(blocks, confidence=0.99, resamples=100),
        stats.interval(blocks, confidence=0.9, resamples=100),
    )
    assert wide.low <= narrow.low <= narrow.high <= wide.high


@given(log_ratio_blocks)
def test_the_interval_stays_within_the_data(blocks: list[stats.Floats]) -> None:
    found = stats.interval(blocks, resamples=50)
    assert (
        math.exp(min(map(np.min, blocks))) * (1 - 1e-9)
        <= found.low
        <= found.high
        <= math.exp(max(map(np.max, blocks))) * (1 + 1e-9)
    )


def test_summary_and_geometric_mean() -> None:
    assert stats.summarise(np.array([np.nan])) is None
    found = stats.summarise(np.array([1.0, 2.0, 3.0, np.nan]))
    assert found is not None
    assert (found.median, found.p10, found.p90, found.n) == pytest.approx((2.0, 1.2, 2.8, 3))
    assert stats.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(stats.geometric_mean([]))
