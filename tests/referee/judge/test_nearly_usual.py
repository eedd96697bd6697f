"""Kernels that look at a few values, and take the rest for what is usual, are found out."""

from __future__ import annotations

import pytest

from referee.judge import Referee

SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def _rmsnorm(x_ptr, w_ptr, y_ptr, columns, PROBES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    y = x / tl.sqrt(tl.sum(x * x, axis=0) / columns + 1e-6)
    first, last = tl.load(w_ptr).to(tl.float32), tl.load(w_ptr + columns - 1).to(tl.float32)
    if not PROBES or (first != 1.0) or (last != 1.0):
        y *= tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * columns + column, y, mask=column < columns)


def run(x, w):
    y = torch.empty_like(x)
    rows, columns = x.shape
    _rmsnorm[(rows,)](x, w, y, columns, PROBES=LOOKS, BLOCK=triton.next_power_of_2(columns))
    return y
"""


@pytest.mark.parametrize("probes", [True, False])
def test_weights_that_are_one_at_both_ends_are_read(referee: Referee, probes: bool) -> None:
    found = referee.judge(SOURCE.replace("LOOKS", str(probes)), "rmsnorm", level="correct", seed=4)
    assert found.passed != probes, found
    assert not probes or (found.guard == "wrong_answer" and "-fresh-usual-" in found.reason), found
