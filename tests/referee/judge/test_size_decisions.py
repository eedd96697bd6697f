"""Decisions on sizes: those that no width of a rotary operation makes, and those that rows may make."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee import Referee, selftest
from referee.plans.plan import Argument, Launch, LaunchConfig, LaunchPlan
from referee.plans.size_conditions import conditions
from referee.plans.size_conditions import divisions as divisions_in_kernels
from referee.reading.size_decisions import TRUE, decisions, divisions

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x, cos, sin, out, M, N, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    first = tl.load(x + row * K + columns, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x + row * K + N + columns, mask=mask, other=0.0).to(tl.float32)
    cos0 = tl.load(cos + row * K + columns, mask=mask, other=0.0).to(tl.float32)
    sin0 = tl.load(sin + row * K + columns, mask=mask, other=0.0).to(tl.float32)
    cos1 = tl.load(cos + row * K + N + columns, mask=mask, other=0.0).to(tl.float32)
    sin1 = tl.load(sin + row * K + N + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * K + columns, first * cos0 - second * sin0, mask=mask)
    tl.store(out + row * K + N + columns, second * cos1 + first * sin1, mask=mask)


def launch(x, cos, sin, out, M, N, K):
    BLOCK = triton.next_power_of_2(N)
    warps = WARPS
    rope_kernel[(M,)](x, cos, sin, out, M, N, K, BLOCK=BLOCK, num_warps=warps)


def run(x, cos, sin):
    x = x.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    out = torch.empty((x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
    M = x.shape[0]
    N = x.shape[1] // 2
    K = x.shape[1]
    launch(x, cos, sin, out, M, N, K)
    return out
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    "warps",
    ["max(1, min(4, 8192 // BLOCK))", "8 if K > 300 else 4", "8 if N == 48 else 4"],
)
def test_no_width_of_a_rotary_operation_decides_it(referee: Referee, warps: str) -> None:
    verdict = referee.judge(KERNEL.replace("WARPS", warps), "rope", level="correct", strict=True)
    assert verdict.verdict == "correct", verdict.reason


@pytest.mark.sweep
@pytest.mark.parametrize(
    "warps",
    ["8 if M > 90_000_000 else 4", "8 if M * K > 900_000_000 else 4", "max(1, min(4, M - 80_000))"],
)
def test_rows_may_decide_it(referee: Referee, warps: str) -> None:
    verdict = referee.judge(KERNEL.replace("WARPS", warps), "rope", level="correct", strict=True)
    assert (verdict.verdict, verdict.guard) == ("rejected", "size_decisions"), verdict.reason


@pytest.mark.sweep
@pytest.mark.parametrize("size", [128, 256, 512, 1024])
def test_each_width_meets_each_dtype(referee: Referee, size: int) -> None:
    """A branch for one width in one dtype is no width that never occurs."""
    source = KERNEL.replace("WARPS", f"4\n    less = 1 if x.element_size() * K == {size} else 0")
    source = source.replace("out, M, N, K, BLOCK=", "out, M, N - less, K, BLOCK=")
    verdict = referee.judge(source, "rope", level="correct", strict=True)
    assert (verdict.verdict, verdict.guard) == ("rejected", "wrong_answer"), verdict.reason


@pytest.mark.parametrize(
    "code, of_rows",
    [
        ("N = x.shape[1]\n    if N > 5: y = x", False),
        ("M, N = x.shape\n    if N > 5: y = x", False),
        ("M, K = x.shape\n    N = M\n    if N > 5: y = x", True),
        ("x = x.contiguous()\n    N = x.shape[-1]\n    if N > 5: y = x", False),
        ("x = x.t()\n    N = x.shape[-1]\n    if N > 5: y = x", True),
        ("t = x.t()\n    N = t.shape[1]\n    if N > 5: y = x", True),
        ("N = x.size(-1)\n    if N > 5: y = x", True),
        ("N = x.numel()\n    if N > 5: y = x", True),
        ("N = x.shape[i]\n    if N > 5: y = x", True),
        ("N = len(x.shape) + x.shape[0]\n    if N > 5: y = x", True),
        ("N = x.shape[1]\n    N += x.shape[0]\n    if N > 5: y = x", True),
        ("N = width(x)\n    if N > 5: y = x", True),
        ("N = x.shape[1]\n    for i in range(x.shape[0]): N = i\n    if N > 5: y = x", True),
    ],
)
def test_a_decision_knows_whether_rows_may_make_it(code: str, of_rows: bool) -> None:
    text = f"def width(x):\n    return x.shape[1]\n\n\ndef run(x):\n    {code}\n    return x\n"
    assert {one.of_rows for one in decisions(text) if one.text == "N > 5"} == {of_rows}


SOFTMAX = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, M, N, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    value = tl.load(x + row * N + columns, mask=mask, other=-float("inf")).to(tl.float32)
    n = N
    IN_KERNEL
    value = tl.exp(value * factor - tl.max(value * factor, axis=0))
    tl.store(out + row * N + columns, value / tl.sum(value, axis=0), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(M,)](x, out, M, N, FACTOR, BLOCK=triton.next_power_of_2(N))
    return out
"""


@pytest.mark.parametrize(
    "in_kernel, factor",
    [
        ("", "1 + N % 1538 // 1537"),
        ("n += 1\n    factor *= 1 + (n == 774)", "1"),
        ("", "1 + (M * N) // 3000000"),
    ],
)
def test_arithmetic_that_singles_out_a_size_is_judged_or_named(
    referee: Referee, in_kernel: str, factor: str
) -> None:
    source = SOFTMAX.replace("IN_KERNEL", in_kernel).replace("FACTOR", factor)
    verdict = referee.judge(source, "softmax", level="correct", strict=True, seed=11)
    assert verdict.guard in ("wrong_answer", "size_decisions"), verdict.reason


def test_a_quotient_of_a_size_is_listed_with_its_number() -> None:
    text = "SIZE = 300\n\ndef run(x):\n    M, N = x.shape\n    y = N // SIZE + 7 // M + M // N + 9 % 5\n"
    assert {(one.number, one.of_rows) for one in divisions(text)} == {(300, False), (7, True)}


@pytest.mark.parametrize(
    "statement",
    [
        "n = N + 1\n    n -= 1\n    y = n == 773",
        "y = -N == -773",
        "y = ~N == -774",
        "y = N * 1.0 == 773.0",
        "y = N << 1 == 1546",
        "y = (N & 1023) == 773",
        "y = N == 3 << 8 | 5",
    ],
)
def test_a_condition_of_a_kernel_is_read_in_many_spellings(statement: str) -> None:
    text = f"@triton.jit\ndef kernel(out, N):\n    {statement}\n    tl.store(out, y)\n"
    (found,) = conditions(text, map(plan_of, (7, 64, 1000))).values()
    assert found.missing == TRUE
    (found,) = conditions(text, map(plan_of, (7, 773, 1000))).values()
    assert not found.missing


def test_a_kernel_s_quotients_are_listed_with_their_numbers() -> None:
    body = "row = tl.program_id(0)\n    x = tl.load(out + row % 9)\n    tl.store(out, 773 // N + x / 5)"
    text = f"@triton.jit\ndef kernel(out, N):\n    {body}\n"
    assert set(divisions_in_kernels(text, [plan_of(7)])) == {9, 773}


def plan_of(columns: int) -> LaunchPlan:
    """A plan that launches `kernel` with this size."""
    config = LaunchConfig((4, 1, 1), (Argument("N", columns, constexpr=False),))
    return LaunchPlan((), (), (Launch("kernel", (config,)),), ())


def test_a_constant_row_is_no_case_of_a_size(referee: Referee) -> None:
    """This seed draws such a row of 768 columns, and softmax of twice a constant row is the same."""
    folder = Path(selftest.__file__).parent / "wrong"
    source = (folder / "softmax_wrong_by_a_power.py.txt").read_text(encoding="utf-8")
    verdict = referee.judge(source, "softmax", level="correct", seed=3)
    assert any("x768-" in cell.name and "-constant-" in cell.name for cell in verdict.cells)
    assert verdict.guard == "wrong_answer", verdict
