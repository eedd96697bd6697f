"""The judgement of a time against the floor. The traffic itself needs a GPU and is a stand-in here."""

from __future__ import annotations

import pytest

from referee import floor
from referee.floor import Floor
from referee.measurement import CANDIDATE, FLOOR
from referee.stats import Interval, Summary

BYTES = 64 << 20
RATED = 4.8e12


def problem(mine: float, traffic: float, *, low: float | None = None, read: int = BYTES, written: int = BYTES) -> str | None:
    ratio = traffic / mine
    made = Floor(read, written, RATED)
    device = {CANDIDATE: Summary(mine, mine, mine, 320), FLOOR: Summary(traffic, traffic, traffic, 40)}
    return made.problem(device, {FLOOR: Interval(ratio, low or ratio, ratio, 0.95, 40, 4)})


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


def test_short_kernels_and_those_that_mostly_read_are_shown_only() -> None:
    assert problem(6.0, 9.0, read=1 << 20, written=1 << 20) is None
    assert problem(0.8 * 34.5, 34.5, written=BYTES // 100) is None


def test_reading_faster_than_the_memory_is_rated_for_is_an_error() -> None:
    rated = 1e6 * BYTES / RATED
    found = problem(0.9 * rated, 12.0, written=BYTES // 100)
    assert found and "the memory's rated speed" in found
    assert problem(0.97 * rated, 12.0, written=BYTES // 100) is None
