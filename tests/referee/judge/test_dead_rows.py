"""Rows of nothing but -Inf, as a mask leaves them where all positions are padding."""

from __future__ import annotations

import pytest

from referee.judge import Referee

SOFTMAX = """
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + at, mask=at < N, other=-float("inf")).to(tl.float32)
    largest = tl.max(x, axis=0)
    share = tl.exp(x - largest)
    y = share / tl.sum(share, axis=0)
    tl.store(y_ptr + row * N + at, ANSWER, mask=at < N)


def run(x):
    M, N = x.shape
    y = torch.empty_like(x)
    _kernel[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y
"""


@pytest.mark.parametrize(
    ("answer", "propagates"),
    [("y", True), ('tl.where(largest == -float("inf"), 0.0, y)', False)],
    ids=["as in PyTorch", "zeros"],
)
def test_a_kernel_that_hides_a_nan_row_loses_the_capability(
    referee: Referee, answer: str, propagates: bool
) -> None:
    verdict = referee.judge(SOFTMAX.replace("ANSWER", answer), "softmax", level="correct")
    assert verdict.passed, verdict.reason
    found = {one.name: one.status for one in verdict.cells if "-nonfinite-x" in one.name}
    assert found and set(found.values()) == ({"pass"} if propagates else {"fail"}), found
