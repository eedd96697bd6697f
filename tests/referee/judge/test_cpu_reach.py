"""What the cells of the CPU path reach of a kernel: later turns of loops, other configurations,
branches for many or long rows, tails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from referee import Referee, Verdict
from referee.interpreter.interpret import Executed, Execution, execute
from referee.plans.autotune import distinct_configurations
from referee.plans.plan import Argument, Launch, LaunchConfig, LaunchPlan
from referee.sandbox.zygote import Workers
from referee.verdict import Rejection

ROW = """@triton.jit
def _kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * N + cols, {result}, mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    {host}
    _kernel[(M,)](x, out, M, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
STRIDING = """@triton.jit
def _kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for start in range(tl.program_id(0) * BLOCK, total, step):
        x = tl.load(x_ptr + at, mask=at < total, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < total)
        at += {step}


def run(x):
    out = torch.empty_like(x)
    programs = {programs}
    _kernel[(min(triton.cdiv(x.numel(), {block}), programs),)](x, out, x.numel(), BLOCK={block})
    return out
"""
PROCESSORS = "torch.cuda.get_device_properties(x.device).multi_processor_count"
CONFIGURED = """@triton.autotune([triton.Config({{"WAY": 0}}), triton.Config({{"WAY": 1}})], key=["N"])
@triton.jit
def _kernel(x_ptr, out_ptr, M, N, WAY: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    y = x * tl.sigmoid(x)
    if WAY:
        y = {result}
    tl.store(out_ptr + row * N + cols, y, mask=cols < N)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, M, N, BLOCK=triton.next_power_of_2(N))
    return out
"""


def silu(result: str = "x * tl.sigmoid(x)", host: str = "pass") -> str:
    return ROW.format(result=result, host=host)


def striding(step: str = "step", programs: str = PROCESSORS, block: int = 1024) -> str:
    return STRIDING.format(step=step, programs=programs, block=block)


def assert_wrong(verdict: Verdict, *words: str) -> None:
    assert (verdict.verdict, verdict.guard) == ("rejected", "wrong_answer"), verdict.reason
    assert all(word in verdict.reason for word in words), verdict.reason


@pytest.mark.sweep
@pytest.mark.parametrize("block", [1024, 256, 4096])
def test_a_second_turn_of_a_tile_loop_is_reached_on_any_card(referee: Referee, block: int) -> None:
    assert_wrong(referee.judge(striding("BLOCK", block=block), "silu"), "multiprocessors")


def test_a_row_loop_is_followed_for_a_written_program_count(
    referee: Referee,
) -> None:
    """A loop over rows is followed for a number of programs that is written down."""
    rows = silu("x * tl.sigmoid(x)").replace(
        "row = tl.program_id(0)", "row = tl.program_id(0) % 132"
    )
    assert_wrong(referee.judge(rows, "silu"), "300x")


@pytest.mark.sweep
@pytest.mark.parametrize("programs", [PROCESSORS, f"4 * {PROCESSORS}", "132"])
def test_right_loops_over_tiles_are_correct(referee: Referee, programs: str) -> None:
    verdict = referee.judge(striding(programs=programs), "silu")
    assert verdict.verdict == "correct", verdict.reason
    assert re.match(
        r"\d+ cases of up to 1,[0-5]\d\d rows and [34]\d,\d{3} columns agree with float64",
        verdict.reason,
    ), verdict.reason
    told = {check.name: check.status for check in verdict.checks}
    assert told.get("few_multiprocessors") == (None if programs == "132" else "pass")


@pytest.mark.parametrize(("most", "ends"), [(9, True), (1, False)])
def test_a_slow_kernel_gets_more_time_while_it_completes_cells(
    referee: Referee, monkeypatch: pytest.MonkeyPatch, most: int, ends: bool
) -> None:
    asked: list[int] = []

    def slowly(
        workers: Workers, text: str, executions: Sequence[Execution], **options: Any
    ) -> list[Executed | Rejection]:
        asked.append(len(executions))
        if len(asked) > 2:
            return execute(workers, text, executions, **options)
        over = Rejection("correct", "timeout", "the kernel did not end")
        return [*execute(workers, text, executions[:most], **options), over]

    monkeypatch.setattr("referee.cpu_path.execute", slowly)
    monkeypatch.setattr("referee.cpu_path.PARTS", 1)
    # They would run beside the required cells.
    monkeypatch.setattr("referee.cpu_path.CpuPath.capabilities", lambda *_, **options: iter(()))
    monkeypatch.setattr(
        "referee.stages.check_cpu.batch_invariance.parts_of", lambda *_, **options: []
    )
    verdict = referee.judge(silu(), "silu")
    assert (verdict.verdict, verdict.guard) == (
        ("correct", None) if ends else ("rejected", "timeout")
    ), verdict
    if ends:
        assert asked == sorted(asked, reverse=True) and len(asked) == 3
        required = [cell for cell in verdict.cells if cell.role != "capability"]
        assert len({cell.name for cell in required}) == len(required) and {
            cell.status for cell in required
        } == {"pass"}


def test_configurations_that_launch_the_same_run_once() -> None:
    config = LaunchConfig((2, 1, 1), (Argument("n", 4, False),))
    launches = (
        replace(config, num_warps=8),
        replace(config, num_stages=1),
        replace(config, grid=(3, 1, 1)),
        config,
    )
    plan = LaunchPlan(
        (),
        (),
        (Launch("kernel", launches), Launch("other", (config, replace(config, arguments=())))),
        (),
    )
    assert distinct_configurations(plan, (0, 1, 2, 3)) == [0, 1, 2]
    assert distinct_configurations(plan, (1, 3)) == [1]


def test_a_kernel_that_only_a_larger_card_can_run_is_not_blamed(referee: Referee) -> None:
    verdict = referee.judge(striding(programs=f"1024 // ({PROCESSORS} // 8)"), "silu")
    assert verdict.verdict == "correct", verdict.reason
    assert {check.name: check.status for check in verdict.checks}[
        "few_multiprocessors"
    ] == "skipped"


@pytest.mark.parametrize(
    "result", ["tl.where(row > 0, 0.0, y)", "tl.where(N >= 64, y.to(tl.float16).to(tl.float32), y)"]
)
def test_every_configuration_meets_several_rows_and_every_dtype(
    referee: Referee, result: str
) -> None:
    assert_wrong(referee.judge(CONFIGURED.format(result=result), "silu"), "with configuration 1")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", ["total_memory % 2**30 == 0", "clock_rate == 1_500_000", "memory_bus_width == 384"]
)
def test_the_stand_in_card_cannot_be_recognised(referee: Referee, name: str) -> None:
    host = f"N = N if torch.cuda.get_device_properties(x.device).{name} else N - 1"
    assert_wrong(referee.judge(silu(host=host), "silu"), "multiprocessors")


def test_wide_operations_meet_the_width_they_are_for(referee: Referee) -> None:
    kernel = CHAIN.format(result="tl.where(N > 100_000, 0.0, x)")
    assert_wrong(referee.judge(kernel, "rmsnorm_wide"), "f32-1x131072-mixed-x1")


BRANCHES = (
    "(N > 8192) & (row > 0)", "M > 100", "(M >= 128) & (row > 127)", "M == N",
    "M > 1024", "M % 32 == 0", "(N > 2) & (N < 17)", "N == 8192", "(N > 8192) & (N < 12289)",
)  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("condition", BRANCHES)
def test_branches_for_numbers_of_rows_and_of_columns_are_reached(
    referee: Referee, condition: str
) -> None:
    assert_wrong(referee.judge(silu(f"tl.where({condition}, 0.0, x * tl.sigmoid(x))"), "silu"))


def test_long_rows_come_in_another_dtype_too(referee: Referee) -> None:
    half = (
        "tl.where(N > 8192, (x * tl.sigmoid(x)).to(tl.float16).to(tl.float32), x * tl.sigmoid(x))"
    )
    assert_wrong(referee.judge(silu(half), "silu"), "f32-")


def test_rows_in_the_second_dimension_of_a_grid_are_told(referee: Referee) -> None:
    second = silu().replace("program_id(0)", "program_id(1)").replace("[(M,)]", "[(1, M)]")
    verdict = referee.judge(second, "silu")
    assert verdict.verdict == "correct", verdict.reason
    (told,) = [check for check in verdict.checks if check.name == "many_rows"]
    assert told.status == "skipped" and "65599" in told.detail and "limit" in told.detail
    assert "many_rows" not in {check.name for check in referee.judge(silu(), "silu").checks}


CHAIN = """@triton.jit
def _kernel(x_ptr, w_ptr, out_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / N + 1e-6) * w
    tl.store(out_ptr + row * N + cols, {result}, mask=mask)


def run(x, w):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, w, out, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
GELU = "x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))"
TAILS = {
    "gelu": f"tl.where(x < -4.0, 0.0, tl.where(x > 4.0, x, {GELU}))",
    "silu": "tl.where(x < -8.0, 0.0, x * tl.sigmoid(x))",
    "tanh": "tl.where(x > 4.0, 1.0, 2 * tl.sigmoid(2 * x) - 1)",
    "sigmoid": "tl.where(x < -8.0, 0.0, tl.sigmoid(x))",
    "elu": "tl.where(x < -5.0, -1.0, tl.where(x > 0, x, tl.exp(x) - 1))",
    "softplus": "tl.where(x > 6.0, x, tl.log(1 + tl.exp(x)))",
}


@pytest.mark.sweep
@pytest.mark.parametrize(("seed", "name"), list(enumerate(TAILS)))
def test_a_tail_that_is_cut_off_is_found(referee: Referee, name: str, seed: int) -> None:
    assert_wrong(referee.judge(CHAIN.format(result=TAILS[name]), f"rmsnorm_{name}", seed=seed))
    if name in ("gelu", "silu"):
        assert_wrong(referee.judge(silu(TAILS[name]), name, seed=seed))
