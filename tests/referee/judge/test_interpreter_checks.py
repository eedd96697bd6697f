"""Beside a replay the interpreter looks at small cells: what it rejects though every replay was
right, and what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from referee.candidate import Candidate, Traced
from referee.cases import beside_replay
from referee.checks.interpreter_checks import AT_ONCE, SmallCases, run_interpreter_checks
from referee.concurrency import CancelToken
from referee.cpu_path import PROGRAMS_TWICE, CpuPath
from referee.interpreter.interpret import Executed, Execution, InterpreterUnsupported, execute
from referee.ops.spec import Cell
from referee.plans.autotune import representative_cells, usable_configurations
from referee.plans.plan import Launch, LaunchConfig, LaunchPlan
from referee.problem import Problem, TaskName
from referee.sandbox.zygote import Workers
from referee.selftest.corpus import KINDS, load
from referee.stages import check_gpu
from referee.stages.trace import trace_cells
from referee.verdict import CellResult, Rejection, Verdict
from tests.referee.stand_in import SEED, SOURCE, TUNED, Replayer, Servers, judged

BEYOND = SOURCE.replace("at < total).to", "at < total + 1).to")
SECOND_IS_WRONG = TUNED.replace("x * tl.sigmoid(x)", "x * tl.sigmoid(x) * (BLOCK == 256)")
SHORT_ROWS_ONLY = SOURCE.replace("    y = torch", "    assert x.shape[1] <= 16000\n    y = torch")
BY_ROWS_ON_THE_SECOND_AXIS = """@triton.jit
def _silu(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(1).to(tl.int64) * columns
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at + column, mask=column < columns).to(tl.float32)
        tl.store(y_ptr + at + column, x * tl.sigmoid(x), mask=column < columns)


def run(x):
    y = torch.empty_like(x)
    _silu[(1, x.shape[0])](x, y, x.shape[1], BLOCK=1024)
    return y
"""
BY_ROWS = BY_ROWS_ON_THE_SECOND_AXIS.replace("program_id(1)", "program_id(0)").replace(
    "(1, x.shape[0])", "(x.shape[0],)"
)
MANY = "    if total > 1_000_000:\n        "
SLIPS_OF_MANY_ROWS = [
    (("at < total).to", "at < total + (total > 1_000_000)).to"), "out_of_bounds"),
    (
        ("    tl.store", f"{MANY}x += tl.load(y_ptr + at, mask=at < total) * 0\n    tl.store"),
        "not_deterministic",
    ),
    (
        ("    tl.store", f"{MANY}tl.store(x_ptr + at, x + 1, mask=at < total)\n    tl.store"),
        "input_mutated",
    ),
]
REFERENCE = """import torch


def silu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(8, 100)]
"""
LARGE_GROUPS = 3
SPECIMENS = {one.name: one for kind in KINDS for one in load(kind)}


def rejected(servers: Servers, source: str, op: str = "silu") -> Rejection:
    _, found = judged(servers, source, Replayer(), op)
    assert isinstance(found, Rejection), found
    return found


@pytest.mark.parametrize("source", [SOURCE, TUNED], ids=["plain", "tuned"])
def test_a_right_kernel_is_said_to_be_right_there_too(servers: Servers, source: str) -> None:
    report, found = judged(servers, source, Replayer())
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    checks = {check.name: check for check in found.checks}
    small = beside_replay(Problem("silu"), SEED).required
    assert checks["interpreted"].status == checks["out_of_bounds"].status == "pass"
    assert (
        checks["interpreted"].detail
        == f"{len(small)} small cases agree with float64 in Triton's interpreter too"
    )
    assert not {cell.name for cell in small} & {cell.name for cell in report.cells}, (
        "a replay has its own cells"
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "guard"),
    [
        ("layernorm_block_16384", "wrong_answer"),
        ("layernorm_two_columns", "wrong_answer"),
        ("softmax_racing_maximum", "not_deterministic"),
        ("rope_no_barrier", "not_deterministic"),
        ("softmax_borrows_input", "input_mutated"),
        ("072_lucky_neighbours", "out_of_bounds"),
        ("073_race_behind_an_atomic", "not_deterministic"),
    ],
)
def test_what_no_replay_need_show_is_rejected(servers: Servers, name: str, guard: str) -> None:
    found = rejected(servers, SPECIMENS[name].source, SPECIMENS[name].op)
    assert found.guard == guard and found.reason.startswith("in Triton's interpreter at "), found


def test_a_grid_beyond_cudas_limit_is_no_wrong_answer(servers: Servers) -> None:
    report, found = judged(servers, BY_ROWS_ON_THE_SECOND_AXIS, Replayer())
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    assert (
        report.checks["many_rows"].status == "skipped"
        and "65535" in report.checks["many_rows"].detail
    )
    assert report.checks["interpreted"].status == "pass"


def test_what_a_replay_finds_is_told_first(servers: Servers) -> None:
    report, found = judged(servers, BEYOND, Replayer())
    assert isinstance(found, Rejection) and found.guard == "out_of_bounds", found
    failed = [cell.name for cell in report.cells if cell.status == "fail"]
    assert {name.partition("-")[0] for name in failed} == {"f32", "f16", "bf16"}
    assert len(failed) <= AT_ONCE, "each process ends at its first failure"
    assert found.reason.startswith(f"in Triton's interpreter at {failed[0]}: ")
    failing = next(cell.name for cell in report.cells)
    for _ in range(2):
        _, found = judged(servers, BEYOND, Replayer(frozenset([failing])))
        assert found == Rejection("correct", "wrong_answer", f"at {failing}: wrong")


def test_every_configuration_that_can_be_launched_is_looked_at(servers: Servers) -> None:
    found = rejected(servers, SECOND_IS_WRONG)
    assert found.guard == "wrong_answer" and "with configuration 1" in found.reason, found


@pytest.mark.parametrize("processors", [2, 11, 64])
def test_cells_are_shared_among_processes_and_run_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    asked: list[int] = []

    def noted(
        workers: Workers, text: str, executions: list[Execution], **options: Any
    ) -> list[Executed | Rejection]:
        # Samples of large cases and open lanes are further checks.
        if all(one.sample_seed is None and not one.open_lanes for one in executions):
            asked.append(len(executions))
        return execute(workers, text, executions, **options)

    monkeypatch.setattr("referee.cpu_path.execute", noted)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(1))
    judged(servers, SOURCE, Replayer())
    alone = asked.copy()
    asked.clear()
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(processors))
    judged(servers, SOURCE, Replayer())
    assert len(alone) == 5 and (len(asked) > 5) == (processors > 2), (
        "one for each dtype, or more, and two of capability cases"
    )
    assert len(asked) <= max(5, min(processors, AT_ONCE) - LARGE_GROUPS + 1)
    assert sum(asked) == sum(alone) and max(asked) <= 3 * sum(asked) / len(asked)


def test_what_takes_longest_by_itself_begins_first(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    required = CpuPath.required

    def noted(path: CpuPath, traced: Traced, among: Traced, *, cancel: CancelToken) -> Any:
        begun.append("small")
        return required(path, traced, among, cancel=cancel)

    monkeypatch.setattr(CpuPath, "required", noted)
    monkeypatch.setattr(
        "referee.checks.interpreter_checks.check_sampled_programs",
        lambda *_, **__: begun.append("large"),
    )
    monkeypatch.setattr("referee.checks.interpreter_checks.AT_ONCE", 1)
    judged(servers, SOURCE, Replayer())
    assert begun == ["large"] * LARGE_GROUPS + ["small"] * 3


def test_beside_a_replay_only_telling_cells_run_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    often: dict[str, int] = {}
    runs = CpuPath._runs

    def noted(path: CpuPath, cell: Cell, plan: LaunchPlan, **options: Any) -> Any:
        made = runs(path, cell, plan, **options)
        often[cell.name] = len(made)
        return made

    monkeypatch.setattr(CpuPath, "_runs", noted)
    judged(servers, BY_ROWS, Replayer())
    cases = beside_replay(Problem("silu"), SEED)
    cells = cases.required
    wanted = {
        cell.name
        for cell in representative_cells(cells, SEED)
        if cell.inputs[0].shape[0] <= PROGRAMS_TWICE
    }
    again = {name for name, count in often.items() if count > 1}
    assert often.keys() == {cell.name for cell in (*cells, *cases.capabilities)} and len(wanted) > 3
    assert wanted <= again and len(again - wanted) <= 3 and len(again) < len(cells) / 4


def test_inputs_drawn_during_tracing_are_the_same(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def noted(path: CpuPath, small: Traced, *groups: Any, **options: Any) -> Any:
        task = Problem("silu").task("cpu")
        seen.append(path.data.drawn)
        for cell, _ in small:
            pairs = zip(path.data.inputs(cell), task.inputs(cell, SEED), strict=True)
            assert all(
                torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in pairs
            )
        return run_interpreter_checks(path, small, *groups, **options)

    monkeypatch.setattr("referee.stages.check_gpu.run_interpreter_checks", noted)
    _, found = judged(servers, SOURCE, Replayer())
    monkeypatch.setattr(SmallCases, "_draw", lambda self: None)
    _, other = judged(servers, SOURCE, Replayer())
    assert seen[0] > 0 == seen[1]
    assert (
        isinstance(found, Verdict)
        and isinstance(other, Verdict)
        and found.verdict == other.verdict == "correct"
    )


def test_what_is_replayed_waits_for_no_small_cell(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed, trace, small = (
        Event(),
        trace_cells,
        {cell.name for cell in beside_replay(Problem("silu"), SEED).required},
    )

    def patiently(
        candidate: Candidate, cells: Sequence[Cell], **options: Any
    ) -> Traced | Rejection:
        if small >= {cell.name for cell in cells}:
            assert replayed.wait(60.0), "nothing is replayed before"
        return trace(candidate, cells, **options)

    monkeypatch.setattr("referee.checks.interpreter_checks.trace_cells", patiently)
    _, found = judged(servers, SOURCE, Replayer(whenever=replayed.set))
    assert isinstance(found, Verdict) and found.verdict == "correct", found


def test_a_dtype_that_takes_too_long_excuses_no_other(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def required(
        self: CpuPath, traced: Traced, among: Traced, *, cancel: CancelToken
    ) -> tuple[tuple[CellResult, ...], Rejection | None]:
        dtypes = {cell.inputs[0].dtype for cell, _ in traced}
        assert len(dtypes) == 1 and torch.get_num_threads() == 1
        guard = {"float32": "timeout", "float16": "wrong_answer", "bfloat16": None}[dtypes.pop()]
        return tuple(CellResult(cell.name, cell.role, "pass") for cell, _ in traced), Rejection(
            "correct", guard, "why"
        ) if guard else None

    monkeypatch.setattr(CpuPath, "required", required)
    before = torch.get_num_threads()
    assert rejected(servers, SOURCE) == Rejection(
        "correct", "wrong_answer", "in Triton's interpreter why"
    )
    assert torch.get_num_threads() == before


def test_a_dtype_that_cannot_be_run_excuses_no_other(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def required(
        self: CpuPath, traced: Traced, among: Traced, *, cancel: CancelToken
    ) -> tuple[tuple[CellResult, ...], Rejection | None]:
        if traced[0][0].inputs[0].dtype == "float32":
            return (), Rejection("correct", "out_of_bounds", "why")
        raise InterpreterUnsupported("not that one")

    monkeypatch.setattr(CpuPath, "required", required)
    assert rejected(servers, SOURCE) == Rejection(
        "correct", "out_of_bounds", "in Triton's interpreter why"
    )


def test_a_missing_launch_at_small_cells_is_rejected_by_tracing(
    servers: Servers,
) -> None:
    found = rejected(servers, SHORT_ROWS_ONLY)
    assert found.stage == "trace" and "16385" in found.reason, found


def test_what_the_interpreter_cannot_run_is_left_to_the_replay(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No word that the screen lets through is one of these; a later Triton may bring some.
    monkeypatch.setattr("referee.interpreter.interpret._explained", unsupported)
    report, found = judged(servers, BEYOND, Replayer())
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    for name in ("interpreted", "out_of_bounds"):
        assert (
            report.checks[name].status == "skipped"
            and "cannot run a word" in report.checks[name].detail
        )
    assert "reads and races were not checked" in found.reason


def unsupported(kind: str, message: str) -> Rejection:
    raise InterpreterUnsupported("Triton's interpreter cannot run a word of tomorrow")


def test_keeping_the_interpreter_busy_excuses_nothing(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_gpu, "SECONDS", 1e-4)
    found = rejected(servers, SOURCE)
    assert found.guard == "timeout" and "did not end within 0.0001 s" in found.reason


def test_too_slow_cells_of_a_users_task_are_left_to_the_replay(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check_gpu, "USER_SECONDS", 1e-4)
    # A job is looked at every few milliseconds, and this one takes longer.
    (tmp_path / "reference.py").write_text(REFERENCE.replace("8, 100", "64, 3000"))
    report, found = judged(
        servers, SOURCE, Replayer(), TaskName("silu", str(tmp_path / "reference.py"), "silu")
    )
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    assert (
        report.checks["interpreted"].status == "skipped"
        and "did not end within 0.0001 s" in report.checks["interpreted"].detail
    )
    assert "reads and races were not checked" in found.reason


@pytest.mark.parametrize(
    ("slip", "guard"), SLIPS_OF_MANY_ROWS, ids=[guard for _, guard in SLIPS_OF_MANY_ROWS]
)
def test_what_only_many_rows_reach_is_looked_at_too(
    servers: Servers, slip: tuple[str, str], guard: str
) -> None:
    found = rejected(servers, SOURCE.replace(*slip))
    assert found.guard == guard and found.reason.startswith("in Triton's interpreter at f"), found
    assert any(shape in found.reason for shape in ("8192x4096", "4111x4097", "-fresh-elements-")), (
        found
    )


def test_what_takes_too_long_at_large_cells_is_said(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "referee.checks.interpreter_checks.check_sampled_programs",
        lambda *_, **__: Rejection("correct", "timeout", "at some cell: too slow"),
    )
    report, found = judged(servers, SOURCE, Replayer())
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    assert (
        "at some large cases: at some cell: too slow" in found.reason
        and report.checks["interpreted"].status == "pass"
    )


def test_a_configuration_is_usable_if_every_launch_has_it() -> None:
    one = LaunchConfig((1, 1, 1), ())
    plan = LaunchPlan((), (), (Launch("_a", (one, one, one)), Launch("_b", (one,))), ())
    every = {(0, 0), (0, 1), (0, 2), (1, 0)}
    assert usable_configurations(plan, every) == (0, 1, 2)
    assert usable_configurations(plan, every, 2) == (0, 1)
    assert usable_configurations(plan, every - {(0, 1)}) == (0, 2)
    assert usable_configurations(plan, every - {(1, 0)}) == (0,)
    assert usable_configurations(replace(plan, steps=()), set()) == (0,)
