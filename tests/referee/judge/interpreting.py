"""A kernel of one row a program, one of four integers, and runs by the interpreter."""

from __future__ import annotations

import torch

from referee.interpreter.interpret import Executed, Execution, execute
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

ROW = (
    HEADER
    + """
@triton.jit
def kernel(x0, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    v = tl.load(x0 + row * n + cols, mask=mask, other=0.0)
    {body}
    tl.store(out + row * n + cols, {result}, mask=mask)
"""
)
FOUR = (
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


def of_four(
    zygote: Zygote, value: str, numbers: list[int], *, again: bool = False
) -> Executed | Rejection:
    """What a kernel makes of four integers; `again` as in the second run of a cell."""
    x, out = dense(0, (4,), "int32"), dense(1, (4,), "int32")
    plan = LaunchPlan(
        buffers_of(x, out, inputs=1),
        (x,),
        (launch("kernel", (1, 1, 1), {}, x0=x, out=out),),
        (out,),
    )
    return run(
        zygote,
        FOUR.format(value=value),
        Execution(plan, (torch.tensor(numbers, dtype=torch.int32),), backwards=again),
    )[0]


def run(
    zygote: Zygote, text: str, *executions: Execution, seconds: float = 60.0
) -> list[Executed | Rejection]:
    return execute(zygote, text, executions, seconds=seconds)


def rejection(answers: list[Executed | Rejection]) -> Rejection:
    assert isinstance(answers[-1], Rejection), answers
    return answers[-1]
