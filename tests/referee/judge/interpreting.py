"""A kernel of one row a program, and runs of it by the interpreter."""

from __future__ import annotations

from referee.interpret import Executed, Execution, execute
from referee.verdict import Rejection
from referee.zygote import Zygote
from tests.referee.judge.plans import HEADER

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


def run(zygote: Zygote, text: str, *executions: Execution, seconds: float = 60.0) -> list[Executed | Rejection]:
    return execute(zygote, text, executions, seconds=seconds)


def rejection(answers: list[Executed | Rejection]) -> Rejection:
    assert isinstance(answers[-1], Rejection), answers
    return answers[-1]
