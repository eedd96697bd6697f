"""Threads of one program that may part, because each makes a volatile load itself."""

from __future__ import annotations

import ast

import pytest

from referee.interpreter.divergence import divergent_branches
from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import Fill, LaunchPlan
from referee.sandbox.zygote import Zygote
from tests.referee.by_version import needs_block_pointers
from tests.referee.judge.interpreting import rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

KERNEL = (
    HEADER
    + """
@triton.jit
def total(x):
    return tl.sum(x, axis=0)

@triton.jit
def chosen(value, x):
    z = 0.0
    if value > 0:
        z = tl.sum(x, axis=0)
    return z

@triton.jit
def seen(flag):
    return tl.load(flag, volatile=True)

@triton.jit
def kernel(flag, out, ON: tl.constexpr):
    cols = tl.arange(0, 64)
    x = tl.load(out + cols)
    z = 0.0
    {body}
    tl.store(flag + 1, z)
"""
)
LOAD = "tl.load(flag, volatile=True)"


def answer(zygote: Zygote, body: str) -> str:
    """Why such a kernel is refused; nothing if it is not."""
    flag, out = dense(0, (2,), "float32"), dense(1, (64,), "float32")
    step = launch("kernel", (2, 1, 1), {"ON": 1}, flag=flag, out=out)
    # Programs store the same value.
    plan = LaunchPlan(
        buffers_of(flag, out, inputs=0), (), (Fill(flag, 0.0), Fill(out, 0.0), step), (flag,)
    )
    answers = run(zygote, KERNEL.format(body=body), Execution(plan, ()))
    if isinstance(answers[-1], Executed):
        return ""
    assert (rejection(answers).stage, rejection(answers).guard) == ("honest", "not_deterministic")
    return rejection(answers).reason


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (f"if {LOAD} > 0:\n        z = tl.sum(x, axis=0)", "tl.sum"),
        (
            f"if {LOAD} > 0:\n        z = 1.0\n    else:\n        z = tl.max(tl.sort(x), axis=0)",
            "tl.max",
        ),
        (
            f"v = {LOAD}\n    w = v + 1\n    if w > 1:\n        tl.debug_barrier()",
            "tl.debug_barrier",
        ),
        (f"v = {LOAD}\n    if v > 0:\n        tl.store(out + cols, 1.0)", "tl.store"),
        (f"v = {LOAD}\n    if v > 0:\n        z = tl.sum(tl.load(out + cols), axis=0)", "tl.sum"),
        (f"if {LOAD} > 0:\n        z = tl.atomic_add(flag, 1.0)", "tl.atomic_add"),
        (
            f"c = 0\n    if {LOAD} > 0:\n        c = 1\n    if c == 1:\n        z = total(x)",
            "total",
        ),
        (f"z = chosen({LOAD}, x)", "tl.sum"),
        (f"z = chosen(x=x, value={LOAD})", "tl.sum"),
        pytest.param(
            "if tl.load(flag, None, None, (), '', '', '', True) > 0:\n        z = tl.sum(x, axis=0)",
            "tl.sum",
            marks=needs_block_pointers,
        ),
        ("if seen(flag) > 0:\n        z = tl.sum(x, axis=0)", "tl.sum"),
        (f"z = tl.sum(x, axis=0) if {LOAD} > 0 else 0.0", "tl.sum"),
        (f"if {LOAD} > 0:\n        return\n    z = tl.sum(x, axis=0)", "tl.sum"),
        (f"for i in range({LOAD}.to(tl.int32)):\n        z += tl.sum(x, axis=0)", "tl.sum"),
        (f"while {LOAD} > 0:\n        z += tl.sum(x, axis=0)", "tl.sum"),
        (
            f"n = 0\n    while {LOAD} > 0:\n        n += 1\n    if n > 3:\n        z = tl.sum(x, axis=0)",
            "tl.sum",
        ),
        (f"while ({LOAD} > 0) & (tl.sum(x, axis=0) > 0):\n        pass", "tl.sum"),
        (
            "if tl.max(tl.load(flag + cols * 0, volatile=True), axis=0) > 0:\n        z = tl.sum(x, axis=0)",
            "tl.sum",
        ),
    ],
)
def test_threads_that_part_do_not_come_together(interpreter: Zygote, body: str, what: str) -> None:
    said = answer(interpreter, body)
    assert (
        "may part at" in said
        and f"must come to `{what}` together" in said
        and "use atomics" in said
    )


TOGETHER = """
    debug_barrier argmax argmin cumprod cumsum max min reduce reduce_or associative_scan softmax sum xor_sum bitonic_merge cat dot flip
    gather histogram interleave join permute ravel reshape sort split topk trans
"""


@pytest.mark.parametrize("call", ["tl.{}(x)", "x.{}()"])
def test_everything_that_threads_do_together_is_known(call: str) -> None:
    for name in TOGETHER.split():
        (function,) = ast.parse(
            f"def kernel(flag, x):\n    if {LOAD} > 0:\n        x = {call.format(name)}\n"
        ).body
        assert isinstance(function, ast.FunctionDef)
        (message,) = divergent_branches([function]).values()
        assert f"come to `tl.{name}` together" in message


@pytest.mark.parametrize(
    "body",
    [
        f"while {LOAD} > 0:\n        pass\n    z = tl.sum(x, axis=0)",
        f"v = {LOAD}\n    while v > 0:\n        v = {LOAD}\n    z = tl.sum(x, axis=0)",
        f"while tl.atomic_cas(flag, 0.0, 0.0) > 0:\n        while {LOAD} > 0:\n            pass\n    z = tl.sum(x, axis=0)",
        "while tl.max(tl.load(flag + cols * 0, volatile=True), axis=0) > 0:\n        pass\n    z = tl.sum(x, axis=0)",
        "if tl.atomic_add(flag, 0.0) == 0:\n        z = tl.sum(x, axis=0)",
        "if tl.program_id(0) > 5:\n        z = tl.sum(x, axis=0)",
        f"z = tl.sum(x * {LOAD}, axis=0)",
        f"v = {LOAD}\n    if ON:\n        z = tl.sum(x, axis=0) * v",
        f"if {LOAD} > 0:\n        tl.atomic_add(flag, 0.0)",
        f"if {LOAD} > 0:\n        z = tl.load(flag, volatile=True)\n        z = 0.0",
        "if tl.load(out) > 0:\n        z = tl.sum(x, axis=0)",
        "if tl.load(out, volatile=False) > 0:\n        z = tl.sum(x, axis=0)",
    ],
)
def test_threads_that_stay_together_or_meet_again_are_fine(interpreter: Zygote, body: str) -> None:
    assert answer(interpreter, body) == ""
