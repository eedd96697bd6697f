"""The CPU path: booleans are numbers of one bit, as in compiled code (`arith.addi : i1`)."""

from __future__ import annotations

import pytest
import torch

from referee.interpret import Executed, Execution
from referee.plan import LaunchPlan
from referee.zygote import Zygote
from tests.referee.judge.interpreting import run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

TEXT = (
    HEADER
    + """
@triton.jit
def kernel(x0, out):
    at = tl.arange(0, 4)
    x = tl.load(x0 + at)
    a, b = x > 0, x % 2 == 1
    tl.store(out + at, ({value}).to(tl.int32))
"""
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a + b", [0, 0, 1, 0]),
        ("a - b", [0, 0, 1, 0]),
        ("-a", [0, 1, 1, 1]),
        ("a + True", [1, 0, 0, 0]),
        ("a * b", [0, 1, 0, 1]),
        ("a + b.to(tl.int32)", [0, 2, 1, 2]),
        ("tl.sum(a, 0) + at * 0", [3, 3, 3, 3]),
        ("tl.reduce(b, 0, tl.standard._sum_combine) + at * 0", [0, 0, 0, 0]),
    ],
)
def test_booleans_are_added_in_one_bit(interpreter: Zygote, value: str, expected: list[int]) -> None:
    x, out = dense(0, (4,), "int32"), dense(1, (4,), "int32")
    plan = LaunchPlan(buffers_of(x, out, inputs=1), (x,), (launch("kernel", (1, 1, 1), {}, x0=x, out=out),), (out,))
    answer = run(interpreter, TEXT.format(value=value), Execution(plan, (torch.arange(4, dtype=torch.int32),)))[0]
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0].tolist() == expected
