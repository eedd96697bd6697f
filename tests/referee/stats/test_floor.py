"""The judgement of a time against the floor. The traffic itself needs a GPU and is a stand-in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from referee.timing import floor
from referee.timing.floor import Floor
from referee.timing.measurement import AUTOTUNE, CANDIDATE, COMPILE, EAGER, FLOOR
from referee.timing.stats import Interval, Summary

BYTES = 64 << 20
RATED = 4.8e12


def problem(
    mine: float,
    traffic: float,
    baselines: Mapping[str, float] | None = None,
    *,
    low: float | None = None,
    read: int = BYTES,
    written: int = BYTES,
) -> str | None:
    others = {FLOOR: traffic, **(baselines or {})}
    device = {
        name: Summary(time, time, time, 320) for name, time in {CANDIDATE: mine, **others}.items()
    }
    ratios = {
        name: Interval(time / mine, time / mine, time / mine, 0.95, 40, 4)
        for name, time in others.items()
    }
    if low:
        ratios[FLOOR] = replace(ratios[FLOOR], low=low)
    return Floor(read, written, RATED).problem(device, ratios)


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "stream", lambda read, written: lambda index: None)


@pytest.mark.parametrize("share", [0.95, 0.965, 1.0, 3.0])
def test_a_kernel_at_the_speed_of_memory_is_no_error(share: float) -> None:
    """0.963 was measured for right kernels."""
    assert problem(share * 34.5, 34.5) is None


@pytest.mark.parametrize("share", [0.92, 0.7, 0.5])
def test_a_time_clearly_below_the_traffic_is_an_error(share: float) -> None:
    found = problem(share * 34.5, 34.5)
    assert found and "moving the same bytes takes 34.5 us: not a record but an error" in found


def test_what_the_interval_leaves_open_is_no_error() -> None:
    assert problem(0.9 * 34.5, 34.5, low=1.05) is None


def test_what_a_baseline_takes_no_longer_for_is_possible() -> None:
    """The traffic itself was slow then, by where it lay or how it was cut up."""
    assert problem(47.8, 52.5, {EAGER: 438.0, COMPILE: 47.9, AUTOTUNE: 56.0}) is None
    found = problem(47.8, 52.5, {EAGER: 438.0, COMPILE: 52.0, AUTOTUNE: 56.0})
    assert found and "52.5 us" in found


def test_the_rated_speed_needs_no_traffic_that_was_timed() -> None:
    rated = 1e6 * BYTES / RATED
    device = {CANDIDATE: Summary(0.5 * rated, 0.5 * rated, 0.5 * rated, 320)}
    found = Floor(BYTES, BYTES, RATED).problem(device, {})
    assert found and "the memory's rated speed" in found
    assert Floor(BYTES, BYTES, None).problem(device, {}) is None


def test_a_baseline_of_which_little_is_known_excuses_nothing() -> None:
    """With fewer than two usable blocks its interval reaches from 0 to infinity."""
    device = {
        name: Summary(time, time, time, 320)
        for name, time in {CANDIDATE: 24.0, FLOOR: 34.5, EAGER: 400.0}.items()
    }
    certain = Interval(34.5 / 24.0, 1.43, 1.45, 0.95, 40, 4)
    little = Interval(400.0 / 24.0, 0.0, float("inf"), 0.95, 10, 1)
    of = Floor(BYTES, BYTES, None)
    assert of.problem(device, {FLOOR: certain, EAGER: little})
    assert of.problem(device, {FLOOR: certain, EAGER: replace(little, blocks=2)}) is None
    assert of.problem(device, {FLOOR: replace(certain, blocks=1), EAGER: certain}) is None


def test_short_kernels_and_those_that_mostly_read_are_shown_only() -> None:
    assert problem(6.0, 9.0, read=1 << 20, written=1 << 20) is None
    assert problem(0.8 * 34.5, 34.5, written=BYTES // 100) is None


def test_reading_faster_than_the_memory_is_rated_for_is_an_error() -> None:
    rated = 1e6 * BYTES / RATED
    found = problem(0.9 * rated, 12.0, written=BYTES // 100)
    assert found and "the memory's rated speed" in found
    assert problem(0.97 * rated, 12.0, written=BYTES // 100) is None
