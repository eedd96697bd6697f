"""The profile of a replay worker: parts within parts, and processes after one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.gpu.replayer import Replayer
from referee.gpu.warm_worker import WAITING, WarmWorker
from referee.timing.spent import Spent, added


def test_a_part_within_a_part_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 4.0, 4.0, 6.0, 7.0])
    monkeypatch.setattr("referee.timing.spent.time.perf_counter", lambda: next(now))
    spent = Spent()
    with pytest.raises(ValueError, match="broken"), spent.during("timing"):
        with spent.during("building"):
            pass
        with spent.during("building"):
            pass
        raise ValueError("broken")
    assert spent.seconds == {"building": 5.0, "timing": 2.0}


def test_profiles_are_added_part_by_part() -> None:
    assert added({"timing": 1.0}, {}, {"timing": 2.0, "checking": 3.0}) == {
        "timing": 3.0,
        "checking": 3.0,
    }


def test_the_totals_of_a_process_count_once(tmp_path: Path) -> None:
    worker = WarmWorker(tmp_path, "cpu")
    for total in (1.0, 1.5):
        worker._count({"checking": total})
    assert worker.spent == {"checking": 1.5}


def test_a_worker_tells_where_its_seconds_go(tmp_path: Path) -> None:
    with Replayer(device="cpu", cache=tmp_path) as replayer:
        replayer.environment()
        spent = replayer.spent
        assert {"loading torch", "other", WAITING} <= spent.keys()
        assert 0 < spent["loading torch"] <= replayer.seconds
