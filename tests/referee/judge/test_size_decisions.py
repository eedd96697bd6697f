"""Decisions on sizes: those that no width of a rotary operation makes, and those that rows may make."""

from __future__ import annotations

import pytest

from referee import Referee
from referee.reading.size_decisions import decisions

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


@pytest.mark.parametrize(
    "warps",
    ["max(1, min(4, 8192 // BLOCK))", "8 if K > 300 else 4", "8 if N == 48 else 4"],
)
def test_no_width_of_a_rotary_operation_decides_it(referee: Referee, warps: str) -> None:
    verdict = referee.judge(KERNEL.replace("WARPS", warps), "rope", level="correct", strict=True)
    assert verdict.verdict == "correct", verdict.reason


@pytest.mark.parametrize(
    "warps",
    ["8 if M > 90_000_000 else 4", "8 if M * K > 900_000_000 else 4", "max(1, min(4, M - 80_000))"],
)
def test_rows_may_decide_it(referee: Referee, warps: str) -> None:
    verdict = referee.judge(KERNEL.replace("WARPS", warps), "rope", level="correct", strict=True)
    assert (verdict.verdict, verdict.guard) == ("rejected", "size_decisions"), verdict.reason


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
