"""Cells that only earn badges have a worker of their own: what may run beside what, and what is
asked again alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from referee import ops
from referee.gpu.jobs import CompiledCandidate, ReplayJob
from referee.gpu.replayer import Replayer, ReplayerError
from referee.gpu.warm_worker import WarmWorker
from referee.gpu.worker_process import WorkerLost, WorkerStep
from referee.ops.spec import Cell
from referee.problem import TaskName
from tests.referee.gpu.test_worker_process import launching_plan

BADGE = next(cell for cell in ops.cells(ops.get("relu2"), profile="gpu") if "empty" in cell.name)
REQUIRED = replace(BADGE, role="required")
PASSED: dict[str, Any] = {"cells": [], "rejection": None, "seconds": {}}
# So long a test waits for what does not come, where it fails.
SECONDS = 20.0
LOST = WorkerLost("timeout", WorkerStep("replaying it", "candidate"), "")


def prepared(cell: Cell) -> CompiledCandidate:
    return CompiledCandidate(
        TaskName("relu2"), (ReplayJob(cell, replace(launching_plan(cell), steps=()), {}),)
    )


class Acting:
    """Stands in for a worker's process: notes that it is asked, and answers what it is told to, in
    turn.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worker: WarmWorker) -> None:
        self.asked: list[Future[Any]] = []
        self._begun = threading.Semaphore(0)
        monkeypatch.setattr(worker, "_asked", self._answer)

    def _answer(self, framed: bytes, interrupts: int) -> Any:
        asked: Future[Any] = Future()
        self.asked.append(asked)
        self._begun.release()
        return asked.result(SECONDS)

    def next(self) -> Future[Any]:
        """The next request, once it has come."""
        assert self._begun.acquire(timeout=SECONDS), "nothing was asked"
        return self.asked[-1]

    @property
    def idle(self) -> bool:
        """Whether every request that came was answered."""
        return all(one.done() for one in self.asked)


class Both:
    """A replayer with two workers that are acted, and threads to ask it from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
        self.replayer = Replayer(device="cpu", apart=True)
        self.first, self.earning = (
            Acting(monkeypatch, worker) for worker in (self.replayer._first, self.replayer._earning)
        )
        self._pool = pool

    def check(self, cell: Cell) -> Future[Any]:
        return self._pool.submit(self.replayer.check, prepared(cell), seed=1)

    def hello(self) -> Future[Any]:
        return self._pool.submit(self.replayer.environment)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    with ThreadPoolExecutor(4) as pool:
        yield Both(monkeypatch, pool)


def test_badges_are_replayed_beside_what_must_pass(both: Both) -> None:
    must, badges = both.check(REQUIRED), both.check(BADGE)
    asked = [both.first.next(), both.earning.next()]
    for one in asked:
        one.set_result(PASSED)
    assert must.result().rejection is None and badges.result().rejection is None
    assert len(both.first.asked) == len(both.earning.asked) == 1


def test_nothing_is_replayed_beside_anything_else(both: Both) -> None:
    """Timing, tuning and warming are asked for as this is."""
    badges = both.check(BADGE)
    earning = both.earning.next()
    alone = both.hello()
    earning.set_result(PASSED)
    asked = both.first.next()
    assert both.earning.idle
    later = both.check(BADGE)
    assert not both.replayer._earning.turn.acquire(timeout=0.01), (
        "its turn is free while something else is measured"
    )
    assert both.earning.idle, "badges are replayed while something else is measured"
    asked.set_result({"environment": {}})
    both.earning.next().set_result(PASSED)
    assert badges.result() and alone.result() and later.result()


@pytest.mark.parametrize(
    "failed",
    [
        LOST,
        PASSED | {"ends": True},
        {"broken": "out of memory", "ends": True},
        PASSED | {"short": True},
    ],
)
@pytest.mark.parametrize(("cell", "beside"), [(REQUIRED, BADGE), (BADGE, REQUIRED)])
def test_what_fails_beside_the_other_worker_is_asked_again_alone(
    both: Both, cell: Cell, beside: Cell, failed: Any
) -> None:
    who, other = (both.first, both.earning) if cell is REQUIRED else (both.earning, both.first)
    neighbour = both.check(beside)
    busy = other.next()
    found = both.check(cell)
    asked = who.next()
    asked.set_exception(failed) if isinstance(failed, WorkerLost) else asked.set_result(failed)
    busy.set_result(PASSED)
    again = who.next()
    assert other.idle
    again.set_result(PASSED)
    assert found.result().rejection is None and neighbour.result().rejection is None
    assert len(who.asked) == 2 and len(other.asked) == 1


def test_a_failure_beside_another_workers_end_is_run_again(both: Both) -> None:
    found = both.check(REQUIRED)
    asked = both.first.next()
    neighbour = both.check(BADGE)
    both.earning.next().set_result(PASSED)
    assert neighbour.result().rejection is None
    asked.set_result(PASSED | {"ends": True})
    both.first.next().set_result(PASSED)
    assert found.result().rejection is None


@pytest.mark.parametrize("cell", [REQUIRED, BADGE])
def test_what_fails_alone_has_failed(both: Both, cell: Cell) -> None:
    who = both.first if cell is REQUIRED else both.earning
    found = both.check(cell)
    who.next().set_exception(LOST)
    assert [result.status for result in found.result().cells] == ["fail"] and len(who.asked) == 1
    broken = both.check(cell)
    who.next().set_result({"broken": "no such op", "ends": True})
    with pytest.raises(ReplayerError, match="no such op"):
        broken.result()


def test_one_worker_does_both_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    replayer = Replayer(device="cpu")
    answers: Sequence[tuple[str, WarmWorker]] = (
        ("first", replayer._first),
        ("earning", replayer._earning),
    )

    def answer(name: str, *_: object) -> dict[str, Any]:
        names.append(name)
        return PASSED | {"environment": {"memory_bytes": 48 << 30}}

    for name, worker in answers:
        monkeypatch.setattr(worker, "_asked", partial(answer, name))
    assert replayer.environment()["badges"] == "the same process: 48 GiB"
    replayer.check(prepared(BADGE), seed=1)
    assert names == ["first", "first"]


def test_two_processes_answer_and_both_end(tmp_path: Path) -> None:
    with Replayer(device="cpu", cache=tmp_path, apart=True) as replayer:
        assert replayer.environment()["badges"].startswith("a separate process")
        assert replayer.started == 1
        replayer.expect_capabilities()
        assert replayer.started == 2
        assert [
            replayer.check(prepared(cell), seed=1).cells[0].status for cell in (REQUIRED, BADGE)
        ] == ["pass", "pass"]
        pids = [worker.pid for worker in (replayer._first, replayer._earning)]
        assert replayer.started == 2 and None not in pids and pids[0] != pids[1]
        replayer.interrupt()
        assert [worker.pid for worker in (replayer._first, replayer._earning)] == [None, None]
        assert replayer.check(prepared(BADGE), seed=1).cells[0].status == "pass"
    assert [worker.pid for worker in (replayer._first, replayer._earning)] == [None, None]
