"""The way of a candidate that is replayed, on a machine without a GPU: everything is real but the
replay worker, which only notes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import triton

from referee.candidate import Candidate
from referee.compiling.compile import CompileAhead
from referee.compiling.compile_jobs import ENTRY, compile_jobs, request_effort, requests
from referee.ops.fresh_capabilities import fresh_capabilities
from referee.ops.fresh_cells import fresh_cells
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.problem import Problem, capabilities, partition_by_rows, required
from referee.sandbox.zygote_job import Outcome
from referee.selftest.corpus import load
from referee.stages import check_gpu
from referee.stages.compile import compile_parts
from referee.target import Target
from referee.verdict import Rejection, Verdict
from tests.referee.stand_in import SEED, SOURCE, TUNED, Replayer, Servers, jobs_ended, judged

DIFFERENT_BLOCKS = SOURCE.replace("BLOCK = 256", "BLOCK = triton.next_power_of_2(x.shape[1])")
ASSERTION = '    tl.static_assert((BLOCK != 128) & (BLOCK > 1), "a block of this size")'
BROKEN_FOR_SOME = DIFFERENT_BLOCKS.replace("    x = tl.load", f"{ASSERTION}\n    x = tl.load")
ALIKE = '@triton.autotune([triton.Config({}), triton.Config({})], key=["total"])\n'


def names() -> list[str]:
    problem = Problem("silu")
    usual, many = partition_by_rows(
        [*required(problem.cells("gpu")), *fresh_cells(problem.op, SEED, gpu=True)]
    )
    return [cell.name for cell in (*usual, *many)]


def columns(name: str) -> int:
    return int(name.split("-")[1].split("x")[1])


def compiled(ended: Sequence[tuple[str, Outcome]]) -> int:
    return sum(entry == ENTRY for entry, _ in ended)


def test_every_cell_is_checked_once_and_reported_in_its_order(servers: Servers) -> None:
    replayer = Replayer()
    report, verdict = judged(servers, DIFFERENT_BLOCKS, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    problem = Problem("silu")
    extra = [
        cell.name
        for cell in fresh_capabilities(
            problem.op, capabilities(problem.cells("gpu")), SEED, gpu=True
        )
    ]
    assert sorted(name for asked in replayer.checked for name in asked) == sorted(
        [*names(), *extra]
    )
    assert [cell.name for cell in report.cells] == [*names(), *extra]
    assert {"trace", "compile", "correct"} <= set(report.seconds)


def test_cells_are_checked_while_others_are_compiled(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = jobs_ended(servers, monkeypatch)
    seen: list[int] = []
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 16)
    judged(servers, DIFFERENT_BLOCKS, Replayer(whenever=lambda: seen.append(compiled(ended))))
    assert seen[0] < compiled(ended) - 1


def test_a_kernel_that_badges_launch_too_is_compiled_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = servers.workers.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        if entry == ENTRY:
            asked.extend(json.dumps(wanted) for wanted in json.loads(payload)["requests"])
        return run(entry, payload, **options)

    monkeypatch.setattr(servers.workers, "run", watched)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 16)
    replayer = Replayer()
    judged(servers, DIFFERENT_BLOCKS, replayer)
    assert len(asked) > 3 and len(asked) == len(set(asked))


def no_badges(*_: object, **__: object) -> list[Cell]:
    """What is begun is then of cells that must pass."""
    return []


@pytest.mark.parametrize(
    ("source", "name"), [(DIFFERENT_BLOCKS, "compile_parts"), (TUNED, "compile_launches")]
)
def test_kernels_are_being_compiled_when_the_trace_ends(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    begun: list[int] = []
    compiles = getattr(check_gpu, name)

    def watched(candidate: Candidate, plans: Sequence[LaunchPlan], ahead: CompileAhead) -> Any:
        begun.append(len(ahead.begun))
        return compiles(candidate, plans, ahead)

    monkeypatch.setattr(check_gpu, name, watched)
    monkeypatch.setattr("referee.cases.fresh_capabilities", no_badges)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 3)
    _, verdict = judged(servers, source, Replayer())
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    assert begun == [3]


def test_nothing_is_compiled_any_more_for_a_candidate_that_falls(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = jobs_ended(servers, monkeypatch)
    # Each would take the compiler minutes.
    endless = DIFFERENT_BLOCKS.replace(
        "    tl.store", "    for j in tl.static_range(0, 10000000):\n        x += j\n    tl.store"
    )
    falls = endless.replace("    y = torch", "    assert x.shape[1] > 1\n    y = torch")
    _, found = judged(servers, falls, Replayer())
    assert isinstance(found, Rejection) and found.stage == "trace", found
    assert {(outcome.status, outcome.detail) for entry, outcome in ended if entry == ENTRY} == {
        ("timeout", "stopped")
    }


def test_cells_with_long_rows_are_traced_first(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    compiles = compile_parts

    def watched(candidate: Candidate, plans: Sequence[LaunchPlan], ahead: CompileAhead) -> Any:
        jobs = compile_jobs(servers.workers, candidate.module, Target())
        asked = {
            jobs.key(wanted): request_effort(wanted)
            for plan in plans
            for _, wanted in requests(plan)
        }
        begun.extend(asked[key] for key in ahead.begun)
        return compiles(candidate, plans, ahead)

    monkeypatch.setattr(check_gpu, "compile_parts", watched)
    monkeypatch.setattr("referee.cases.fresh_capabilities", no_badges)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 16)
    judged(servers, DIFFERENT_BLOCKS, Replayer())
    # But for the cell that is timed, which tells what goes wrong at all cells.
    assert begun[0] == 4096 and begun[1] == 16384 and begun[1:] == sorted(begun[1:], reverse=True)


def test_the_failing_cell_does_not_depend_on_timing(servers: Servers) -> None:
    failing = frozenset(
        ["f16-3x8200-sorted-x8", "bf16-1000x4096-normal-x1", "f16-65x4096-mixed-x0.015625"]
    )
    for _ in range(2):
        report, found = judged(servers, DIFFERENT_BLOCKS, Replayer(failing))
        assert found == Rejection(
            "correct", "wrong_answer", "at f16-65x4096-mixed-x0.015625: wrong"
        )
        assert [cell.name for cell in report.cells] == names()
        by_block = sorted(report.cells, key=lambda cell: triton.next_power_of_2(columns(cell.name)))
        statuses = [cell.status for cell in by_block]
        last = statuses.index("fail")
        assert statuses == ["pass"] * last + ["fail"] + ["skipped"] * (len(statuses) - last - 1)


def test_what_does_not_compile_is_told_before_what_is_wrong(servers: Servers) -> None:
    report, found = judged(servers, BROKEN_FOR_SOME, Replayer(frozenset(names()[:1])))
    assert isinstance(found, Rejection) and (found.stage, found.guard) == (
        "compile",
        "compile_error",
    ), found
    assert "a block of this size" in found.reason
    assert not report.cells


def test_the_interpreter_knows_the_atomics_the_compiler_kept(servers: Servers) -> None:
    specimen = next(one for one in load("cheats") if one.name == "073_ticket_that_nothing_reads")
    _, found = judged(servers, specimen.source, Replayer(), specimen.op)
    assert isinstance(found, Rejection) and found.guard == "not_deterministic", found
    assert "add tl.debug_barrier()" in found.reason


def test_an_autotuned_launch_is_settled_before_any_check(servers: Servers) -> None:
    replayer = Replayer()
    report, verdict = judged(servers, TUNED, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    assert replayer.tuned == 1
    assert replayer.checked[0] == names()
    assert all(choice == {0: 1} for choice in replayer.choices)
    assert report.checks["autotune"].detail == "configuration by step: {0: 1}"


def test_one_remaining_configuration_is_checked_at_once_too(servers: Servers) -> None:
    replayer = Replayer()
    _, verdict = judged(servers, ALIKE + DIFFERENT_BLOCKS, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    assert (replayer.tuned, replayer.checked[0]) == (0, names())
