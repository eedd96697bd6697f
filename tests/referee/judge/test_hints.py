"""The CPU path: what a kernel tells the compiler of its values is held to be true."""

from __future__ import annotations

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import rowwise

TRUE = [
    "v = v + 0 * tl.multiple_of(row * 16, 16)",
    "v = v + 0 * tl.multiple_of(row * 8, 8)",
    "v = v + 0 * tl.max_contiguous(tl.multiple_of(row * BLOCK + cols, BLOCK), BLOCK)",
    "v = v + 0 * tl.multiple_of(512 * row + cols, 1024)",
    "v = v + 0 * tl.max_contiguous(cols % 32, 32)",
    "v = v + 0 * tl.max_constancy(cols // 4, 4)",
    "v = v + 0 * tl.sum(tl.multiple_of(tl.arange(0, 4)[:, None] * 40 + tl.arange(0, 8)[None, :], (8, 8)))",
    "tl.assume(row < 3)\n    tl.assume(n == 40)",
]
FALSE = {
    "v = v + 0 * tl.multiple_of(row * n + 8, 16)": "8 is no multiple of 16",
    "v = v + 0 * tl.multiple_of(row * BLOCK + cols + 1, 2)": "1 is no multiple of 2",
    "v = v + 0 * tl.multiple_of(2 * cols, 4)": "2 is no multiple of 4",
    "v = v + 0 * tl.max_contiguous(cols % 5, 8)": "[0, 1, 2, 3, 4, 0, 1, 2] are not consecutive",
    "v = v + 0 * tl.max_contiguous(2 * cols, 2)": "[0, 2] are not consecutive",
    "v = v + 0 * tl.max_constancy((cols < n - 1).to(tl.int32), 4)": "[1, 1, 1, 0] are not equal",
    "v = tl.load(tl.multiple_of(x0 + row * n + 1 + cols, 16), mask=mask & (cols < n - 1), other=0.0)": "no multiple of 16",
    "tl.assume(n % 16 == 0)": "the condition of tl.assume is not true",
}


@pytest.mark.parametrize("body", TRUE)
def test_true_hints_pass(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    answer = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),))
    )
    assert isinstance(answer[0], Executed), answer


@pytest.mark.parametrize("body", FALSE)
def test_false_hints_are_named(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    found = rejection(
        run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),)))
    )
    assert found.guard == "kernel_error" and FALSE[body] in found.reason, found
