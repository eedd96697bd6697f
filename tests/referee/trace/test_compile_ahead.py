"""Kernels compiled from the plans that a trace tells while it still runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.compiling.binaries import Binaries
from referee.compiling.compile import compile_plans
from referee.compiling.compile_ahead import CompileAhead
from referee.compiling.compile_jobs import ENTRY, CompileJobs, Results, compile_jobs, requests
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import dump
from referee.reading.kernels import KernelModule, extract
from referee.sandbox.zygote import Outcome, Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

SOURCE = COPY + body(ALLOCATE, LAUNCH.replace("BLOCK=128", "BLOCK=x.shape[1]"), "return y")
CELLS = [rows("x", shape=(1, columns)) for columns in (16, 256, 64)]


@pytest.fixture
def compiled(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many kernels each job for the compiler was asked for, in the order in which they were begun."""
    asked: list[int] = []
    run = zygote.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        if entry == ENTRY:
            asked.append(len(json.loads(payload)["requests"]))
        return run(entry, payload, **options)

    monkeypatch.setattr(zygote, "run", watched)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 16)
    yield asked


def told(zygote: Zygote, jobs: CompileJobs, ahead: CompileAhead) -> tuple[LaunchPlan, ...]:
    with ahead.listening(CELLS) as early:
        plans = trace(zygote, SOURCE, CELLS, Target(), jobs.module, early=early)
    assert isinstance(plans, tuple), plans
    return plans


def by_hand(jobs: CompileJobs, cells: list[Cell], lines: bytes) -> list[str]:
    """What is begun after somebody has told these lines."""
    with CompileAhead(jobs, None) as ahead:
        with ahead.listening(cells) as early:
            os.write(early, lines)
        return list(ahead.begun)


def test_what_a_trace_launches_is_being_compiled_when_it_ends(zygote: Zygote, compiled: list[int]) -> None:
    module = extract(SOURCE)
    jobs = compile_jobs(zygote, module, Target())
    with CompileAhead(jobs, None) as ahead:
        plans = told(zygote, jobs, ahead)
        assert list(ahead.begun) == [jobs.key(request) for plan in plans for _, request in requests(plan)]
        found = compile_plans(zygote, module, plans, Target(), ahead=ahead)
    assert compiled == [1, 1, 1]
    again = compile_plans(zygote, module, plans, Target())
    assert isinstance(found, tuple) and isinstance(again, tuple)
    # But for what names the worker's scratch files.
    assert [replace(one.found[0, 0], image=b"") for one in found] == [replace(one.found[0, 0], image=b"") for one in again]


def test_of_many_kernels_no_more_are_begun_than_there_are_processors(
    zygote: Zygote, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 2)
    module = extract(SOURCE)
    jobs = compile_jobs(zygote, module, Target())
    with CompileAhead(jobs, None) as ahead:
        plans = told(zygote, jobs, ahead)
        assert len(ahead.begun) == 2
        found = compile_plans(zygote, module, plans, Target(), ahead=ahead)
    assert isinstance(found, tuple) and all(isinstance(binaries, Binaries) for binaries in found)
    assert compiled == [1, 1, 1]


def test_what_is_kept_is_not_compiled_ahead(zygote: Zygote, compiled: list[int], tmp_path: Path) -> None:
    module = extract(SOURCE)
    jobs = compile_jobs(zygote, module, Target())
    plans = trace(zygote, SOURCE, CELLS, Target(), module)
    assert isinstance(plans, tuple)
    assert isinstance(compile_plans(zygote, module, plans, Target(), tmp_path), tuple)
    compiled.clear()
    with CompileAhead(jobs, tmp_path) as ahead:
        told(zygote, jobs, ahead)
        assert not ahead.begun
    assert not compiled


def test_a_worker_that_was_lost_ahead_is_begun_again(zygote: Zygote, compiled: list[int]) -> None:
    module = extract(SOURCE)
    plans = trace(zygote, SOURCE, CELLS, Target(), module)
    assert isinstance(plans, tuple)
    jobs = compile_jobs(zygote, module, Target())
    wanted = {jobs.key(request): request for plan in plans for _, request in requests(plan)}
    lost: Future[Results | Rejection] = Future()
    lost.set_exception(RuntimeError("lost"))
    dropped: Future[Results | Rejection] = Future()
    dropped.cancel()
    dropped.set_running_or_notify_cancel()
    made = list(jobs.run_all(wanted, dict(zip(wanted, (lost, dropped), strict=False))))
    assert sorted(key for part in made if isinstance(part, dict) for key in part) == sorted(wanted)
    assert sum(compiled) == 3


def test_what_nobody_asks_for_is_stopped(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would be compiled for minutes.
    source = SOURCE.replace("    tl.store", "    for j in tl.static_range(0, 10000000):\n        i += j\n    tl.store")
    ended: list[Outcome] = []
    run = zygote.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        outcome = run(entry, payload, **options)
        if entry == ENTRY:
            ended.append(outcome)
        return outcome

    monkeypatch.setattr(zygote, "run", watched)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 2)
    jobs = compile_jobs(zygote, extract(source), Target())
    with CompileAhead(jobs, None) as ahead, ahead.listening(CELLS) as early:
        assert isinstance(trace(zygote, source, CELLS, Target(), jobs.module, early=early), tuple)
    assert len(ahead.begun) == 2 and all(begun.done() for begun in ahead.begun.values())
    assert {(outcome.status, outcome.detail) for outcome in ended} <= {("timeout", "stopped")} and ended


def test_what_does_not_compile_is_told_as_if_it_had_not_been_begun(zygote: Zygote) -> None:
    source = SOURCE.replace("    tl.store", "    tl.static_assert(BLOCK != 256, 'not of 256')\n    tl.store")
    module = extract(source)
    jobs = compile_jobs(zygote, module, Target())
    with CompileAhead(jobs, None) as ahead:
        with ahead.listening(CELLS) as early:
            plans = trace(zygote, source, CELLS, Target(), module, early=early)
        assert isinstance(plans, tuple)
        found = compile_plans(zygote, module, plans, Target(), ahead=ahead)
    assert isinstance(found, Rejection) and "not of 256" in found.reason
    assert found == compile_plans(zygote, module, plans, Target())


@pytest.mark.parametrize(
    "lines",
    [b"", b"\n", b"[]\n", b"[0]\n", b"[0, {}]\n", b"[99, {}]\n", b'["0", {}]\n', b"[0.5, {}]\n", b"nonsense", b"[" * 50_000, b"\xff\n"],
)
def test_what_is_no_plan_begins_nothing(zygote: Zygote, lines: bytes) -> None:
    assert by_hand(compile_jobs(zygote, extract(SOURCE), Target()), CELLS, lines) == []


def test_a_cell_s_plan_must_fit_the_cell(zygote: Zygote) -> None:
    module = extract(SOURCE)
    plans = trace(zygote, SOURCE, CELLS, Target(), module)
    assert isinstance(plans, tuple)
    jobs = compile_jobs(zygote, module, Target())
    line = json.dumps(dump(plans[0])).encode()
    assert len(by_hand(jobs, CELLS, b"[0, " + line + b"]\n")) == 1
    assert by_hand(jobs, CELLS, b"[1, " + line + b"]\n") == []


def test_a_trace_is_the_same_when_nobody_listens(zygote: Zygote) -> None:
    module: KernelModule = extract(SOURCE)
    read, write = os.pipe()
    os.close(read)
    try:
        plans = trace(zygote, SOURCE, CELLS, Target(), module, early=write)
    finally:
        os.close(write)
    assert isinstance(plans, tuple) and plans == trace(zygote, SOURCE, CELLS, Target(), module)
