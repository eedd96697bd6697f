"""Kernels compiled from the plans that a trace tells while it still runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from referee.compiling.binaries import Binaries
from referee.compiling.compile import CompileAhead, compile_plans
from referee.compiling.compile_jobs import (
    ENTRY,
    FINAL,
    Begun,
    CompileJobs,
    Request,
    Results,
    compile_jobs,
    request_effort,
    requests,
)
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import dump
from referee.reading.kernels import KernelModule, extract
from referee.sandbox.zygote import Limits, Outcome, Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

SOURCE = COPY + body(ALLOCATE, LAUNCH.replace("BLOCK=128", "BLOCK=x.shape[1]"), "return y")
# It would be compiled for minutes.
SLOW_FOR_64 = "    if BLOCK == 64:\n        for j in tl.static_range(0, 10000000):\n            i += j\n    tl.store"
CELLS = [rows("x", shape=(1, columns)) for columns in (16, 256, 64)]


@pytest.fixture
def compiled(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many kernels each job for the compiler was asked for, in the order in which they were
    begun.
    """
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


def test_what_a_trace_launches_is_being_compiled_when_it_ends(
    zygote: Zygote, compiled: list[int]
) -> None:
    module = extract(SOURCE)
    jobs = compile_jobs(zygote, module, Target())
    with CompileAhead(jobs, None) as ahead:
        plans = told(zygote, jobs, ahead)
        assert list(ahead.begun) == [
            jobs.key(request) for plan in plans for _, request in requests(plan)
        ]
        found = compile_plans(zygote, module, plans, Target(), ahead=ahead)
    assert compiled == [1, 1, 1]
    again = compile_plans(zygote, module, plans, Target())
    assert isinstance(found, tuple) and isinstance(again, tuple)
    # But for what names the worker's scratch files.
    assert [replace(one.found[0, 0], image=b"") for one in found] == [
        replace(one.found[0, 0], image=b"") for one in again
    ]


def test_no_more_compilations_begin_than_there_are_processors(
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


def test_what_is_kept_is_not_compiled_ahead(
    zygote: Zygote, compiled: list[int], tmp_path: Path
) -> None:
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
    begun = Begun()
    for key, future in zip(wanted, (lost, dropped), strict=False):
        begun.unless_begun(key, jobs.limits, partial(_same, future))
    made = list(jobs.run_all(wanted, begun))
    assert sorted(key for part in made if isinstance(part, dict) for key in part) == sorted(wanted)
    assert sum(compiled) == 3


def _same(future: Future[Results | Rejection]) -> Future[Results | Rejection]:
    return future


def wanted_of(
    zygote: Zygote, source: str, columns: Sequence[int]
) -> tuple[CompileJobs, dict[str, Request]]:
    """Requests for rows of so many columns, by their keys."""
    module = extract(source)
    plans = trace(
        zygote, source, [rows("x", shape=(1, each)) for each in columns], Target(), module
    )
    assert isinstance(plans, tuple), plans
    jobs = compile_jobs(zygote, module, Target())
    return jobs, {jobs.key(request): request for plan in plans for _, request in requests(plan)}


def test_what_others_compile_is_not_compiled_again(zygote: Zygote, compiled: list[int]) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 32, 64, 128))
    begun, first = Begun(), dict(list(wanted.items())[:3])
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda some: list(jobs.run_all(some, begun)), (first, wanted)))
    assert [
        sorted(key for part in parts if isinstance(part, dict) for key in part) for parts in made
    ] == [sorted(first), sorted(wanted)]
    assert sum(compiled) == 4


def test_what_others_were_told_of_a_kernel_is_not_believed(
    zygote: Zygote, compiled: list[int]
) -> None:
    """They may have had less time, and other kernels in the same worker."""
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 64))
    begun, told = Begun(), Future[Results | Rejection]()
    told.set_result(Rejection("compile", "timeout", "took too long"))
    less = replace(jobs.limits, processor_seconds=1.0)
    begun.unless_begun(next(iter(wanted)), less, partial(_same, told))
    made = list(jobs.run_all(wanted, begun))
    assert sorted(key for part in made if isinstance(part, dict) for key in part) == sorted(wanted)


def test_a_kernel_that_failed_alone_is_not_compiled_again(
    zygote: Zygote, compiled: list[int]
) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 64))
    begun, told = Begun(), Future[Results | Rejection]()
    why = Rejection("compile", "timeout", "took too long")
    told.set_result(why)
    begun.unless_begun(next(iter(wanted)), jobs.limits, partial(_same, told))
    assert list(jobs.run_all(wanted, begun))[-1] == why
    assert sum(compiled) <= 1


@pytest.mark.parametrize("guard", sorted(FINAL))
def test_a_final_rejection_stops_the_other_compilations(
    guard: str, zygote: Zygote, compiled: list[int]
) -> None:
    """The other kernel would be compiled for minutes."""
    jobs, wanted = wanted_of(zygote, SOURCE.replace("    tl.store", SLOW_FOR_64), (16, 64, 32))
    quick, slow, crashed = wanted
    begun = Begun()
    for key, rejection in ((crashed, "crash"), (quick, guard)):
        told = Future[Results | Rejection]()
        told.set_result(Rejection("compile", rejection, "told"))
        begun.unless_begun(key, jobs.limits, partial(_same, told))
    *made, last = jobs.run_all(wanted, begun)
    # A crash of an earlier kernel is not told: whether it is seen depends on the order of ends.
    assert isinstance(last, Rejection) and last.guard == guard and not made
    assert compiled == [1]


def test_any_other_failure_waits_for_the_rest(zygote: Zygote, compiled: list[int]) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 64, 32))
    begun = Begun()
    for key, reason in zip(wanted, ("first", "second"), strict=False):
        told = Future[Results | Rejection]()
        told.set_result(Rejection("compile", "crash", reason))
        begun.unless_begun(key, jobs.limits, partial(_same, told))
    by_effort = sorted(wanted, key=lambda key: request_effort(wanted[key]), reverse=True)
    made, last = jobs.run_all(wanted, begun)
    assert isinstance(made, dict) and list(made) == list(wanted)[2:]
    assert isinstance(last, Rejection)
    assert last.reason == ("second" if by_effort.index(list(wanted)[1]) == 0 else "first")


def test_a_worker_of_several_kernels_gets_a_part_of_the_time(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 64))
    given: list[tuple[float, float | None]] = []

    def watched(entry: str, payload: bytes, *, limits: Limits, **_: Any) -> Outcome:
        given.append((limits.seconds, limits.processor_seconds))
        return Outcome("timeout", b"", "", 1.0)

    monkeypatch.setattr(zygote, "run", watched)
    jobs.run(wanted)
    jobs.run(dict(list(wanted.items())[:1]))
    assert given == [(80.0, 20.0), (240.0, 60.0)]


def test_kernels_come_in_groups_where_no_processor_is_free(
    zygote: Zygote, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE, (16, 32, 64, 128, 256, 512))
    monkeypatch.setattr(zygote, "running", lambda entry: 15 if entry == ENTRY else 0)
    assert sum(len(part) for part in jobs.run_all(wanted, Begun()) if isinstance(part, dict)) == 6
    assert sorted(compiled) == [3, 3]
    compiled.clear()
    monkeypatch.setattr(zygote, "running", lambda entry: 12 if entry == ENTRY else 0)
    assert sum(len(part) for part in jobs.run_all(wanted, Begun()) if isinstance(part, dict)) == 6
    assert sorted(compiled) == [1, 1, 2, 2]
    with CompileAhead(jobs, None) as ahead:
        monkeypatch.setattr(zygote, "running", lambda entry: 16 if entry == ENTRY else 0)
        told(zygote, jobs, ahead)
        assert not list(ahead.begun)


def test_of_a_group_the_kernel_that_ends_its_worker_is_found(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE.replace("    tl.store", SLOW_FOR_64), (16, 64, 256))
    jobs = replace(jobs, limits=replace(jobs.limits, processor_seconds=2.0))
    monkeypatch.setattr(zygote, "running", lambda entry: 16)
    *made, last = list(jobs.run_all(wanted, Begun()))
    assert sum(len(part) for part in made if isinstance(part, dict)) == 2
    assert isinstance(last, Rejection) and last.guard == "timeout", last


def test_what_nobody_asks_for_is_stopped(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would be compiled for minutes.
    source = SOURCE.replace(
        "    tl.store", "    for j in tl.static_range(0, 10000000):\n        i += j\n    tl.store"
    )
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
    assert len(ahead.begun) == 2 and all(begun.done() for begun in ahead.begun.futures())
    assert {(outcome.status, outcome.detail) for outcome in ended} <= {
        ("timeout", "stopped")
    } and ended


def test_what_nobody_waits_for_any_more_is_stopped(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, wanted = wanted_of(zygote, SOURCE.replace("    tl.store", SLOW_FOR_64), (16, 64))
    ended: list[tuple[str, str]] = []
    run = zygote.run

    def watched(*arguments: Any, **options: Any) -> Outcome:
        outcome = run(*arguments, **options)
        ended.append((outcome.status, outcome.detail))
        return outcome

    monkeypatch.setattr(zygote, "run", watched)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 2)
    parts = jobs.run_all(wanted, Begun())
    first = next(parts)
    assert isinstance(first, dict) and len(first) == 1 and len(ended) == 1
    parts.close()
    assert ended[1:] == [("timeout", "stopped")]


def test_a_failed_compilation_ahead_is_reported_as_any_other(zygote: Zygote) -> None:
    source = SOURCE.replace(
        "    tl.store", "    tl.static_assert(BLOCK != 256, 'not of 256')\n    tl.store"
    )
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
    [
        b"",
        b"\n",
        b"[]\n",
        b"[0]\n",
        b"[0, {}]\n",
        b"[99, {}]\n",
        b'["0", {}]\n',
        b"[0.5, {}]\n",
        b"nonsense",
        b"[" * 50_000,
        b"\xff\n",
    ],
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
