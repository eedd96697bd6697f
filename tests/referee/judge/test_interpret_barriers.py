"""Threads that share memory in the interpreter need barriers, locks or tickets."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.plans.arena import ZERO
from referee.plans.plan import Fill, LaunchPlan
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise


def test_programs_that_change_the_same_element_are_named(interpreter: Zygote) -> None:
    out = dense(0, (1,), "float32")
    text = HEADER + "\n@triton.jit\ndef kernel(out):\n    tl.store(out, tl.program_id(0) + 1.0)\n"
    plan = LaunchPlan(
        buffers_of(out, inputs=0), (), (launch("kernel", (2, 1, 1), {}, out=out),), (out,)
    )
    found = rejection(run(interpreter, text, Execution(plan, ())))
    assert (found.stage, found.guard) == ("honest", "not_deterministic")
    assert "programs (0, 0, 0) and (1, 0, 0) use the same element of `out`" in found.reason


@pytest.mark.parametrize(
    ("options", "ordered"),
    [("", 1), (", sem='relaxed'", 0), (", scope='cta'", 0), (", mask=row < 0", 0)],
)
def test_only_an_atomic_that_orders_memory_makes_a_lock(
    interpreter: Zygote, options: str, ordered: int
) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    plan = replace(plan, steps=(Fill(plan.outputs[0], 0.0), *plan.steps))
    atomic = f"tl.atomic_add(out + n * 2, 0.0{options})"
    body = f"v += {atomic}\n    v += tl.load(out) * 0\n    tl.store(out, 1.0)\n    {atomic}\n    mask &= row < 0"
    answers = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),), ZERO)
    )
    assert (
        isinstance(answers[0], Executed)
        if ordered
        else rejection(answers).guard == "not_deterministic"
    ), answers


SCRATCH = (
    HEADER
    + """
@triton.jit
def kernel(x0, scratch, counts, out, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    back = BLOCK - 1 - cols
    v = tl.load(x0 + cols, mask=cols < n, other=0.0)
    {body}
    tl.store(out + cols, v, mask=cols < n)
"""
)

BARRIER = "program (0, 0, 0) stores to `scratch` and another thread of it uses the element, before or after: add tl.debug_barrier() between"
COUNTS = BARRIER.replace("scratch", "counts")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "tl.store(scratch + cols, v)\n    tl.debug_barrier()\n    v = tl.load(scratch + cols)",
            "",
        ),
        (
            "tl.store(scratch + cols, v)\n    tl.debug_barrier()\n    v = tl.load(scratch + back)",
            "",
        ),
        (
            "tl.store(scratch, tl.sum(v))\n    tl.store(scratch, 1.0)\n    tl.debug_barrier()\n    v += tl.load(scratch)",
            "",
        ),
        ("tl.store(scratch + cols, v)\n    v = tl.load(scratch + cols)", BARRIER),
        ("tl.store(scratch + cols, v)\n    v = tl.load(scratch + back)", BARRIER),
        ("tl.store(scratch + cols, v)\n    v += tl.load(scratch)", BARRIER),
        ("tl.store(scratch, tl.sum(v))\n    v += tl.load(scratch)", BARRIER),
        ("tl.store(scratch, tl.sum(v))\n    v += tl.load(scratch + 0 * cols)", BARRIER),
        ("tl.store(scratch + cols, v)\n    tl.store(scratch + back, v)", BARRIER),
        (
            "h = cols[:, None] + tl.zeros((1, 2), tl.int32)\n    tl.store(scratch + h, v[:, None] + h)\n    tl.debug_barrier()\n    "
            "v = tl.load(scratch + cols[None, :]).reshape((BLOCK,))",
            "",
        ),
        ("tl.atomic_xchg(counts + cols, cols)\n    v += tl.load(counts + back)", COUNTS),
        ("tl.atomic_add(counts + cols, cols)\n    v += tl.load(counts + cols)", COUNTS),
        (
            "tl.atomic_xchg(counts + cols, cols)\n    tl.debug_barrier()\n    v += tl.load(counts + back)",
            "",
        ),
        (
            "tl.atomic_add(counts + cols, 1)\n    tl.atomic_add(counts + cols, 2)\n    tl.store(scratch + cols, v)",
            "",
        ),
        ("v += tl.atomic_add(counts, 1)\n    v += tl.load(counts)", ""),
        ("tl.atomic_add(counts, 1)\n    v += tl.load(counts)", COUNTS),
        (
            "tl.store(counts.to(tl.pointer_type(tl.int64)) + cols // 2, cols.to(tl.int64) // 2 << 32)\n    v += tl.load(counts + back)",
            COUNTS,
        ),
        (
            "tl.store(counts + cols, cols)\n    v += tl.load(counts.to(tl.pointer_type(tl.int64)) + back // 2)",
            COUNTS,
        ),
        (
            "tl.store(counts + 2 * cols, cols, mask=cols < 20)\n    v += tl.load(counts + 2 * cols + 1, mask=cols < 20)",
            "",
        ),
        (
            "v += tl.load(scratch + cols) + tl.load(scratch + back)\n    tl.store(scratch + cols, v)",
            BARRIER,
        ),
        (
            "v += tl.load(scratch + back) + tl.load(scratch + cols)\n    tl.store(scratch + cols, v)",
            BARRIER,
        ),
        (
            "v += tl.load(scratch + back)\n    tl.atomic_xchg(counts + cols, cols)\n    tl.store(scratch + cols, v)",
            BARRIER,
        ),
        ("v += tl.load(counts + back)\n    tl.atomic_xchg(counts + cols, cols)", COUNTS),
        ("v += tl.load(scratch)\n    tl.store(scratch + cols, 2 * v)", BARRIER),
        ("v += tl.load(scratch + 0 * cols)\n    tl.store(scratch + cols, 2 * v)", BARRIER),
        (
            "v += tl.load(scratch + back)\n    tl.debug_barrier()\n    tl.store(scratch + cols, v)",
            "",
        ),
        ("v += tl.load(scratch + back)\n    v /= tl.sum(v)\n    tl.store(scratch + cols, v)", ""),
        (
            "v += tl.load(scratch + back)\n    v = tl.cumsum(v, 0)\n    tl.store(scratch + cols, v)",
            "",
        ),
        (
            "m = tl.reshape(tl.load(scratch + back) + v, (8, 8))\n    v = tl.reshape(tl.dot(m, m), (BLOCK,))\n    "
            "tl.store(scratch + cols, v)",
            "",
        ),
        ("v += tl.load(scratch + cols)\n    tl.store(scratch + cols, v)", ""),
        ("v += tl.load(scratch)\n    tl.store(scratch, 1.0)", ""),
        (
            "at = 2 * tl.arange(0, BLOCK // 2)\n    a, b = tl.split(tl.load(scratch + at[:, None] + tl.arange(0, 2)[None, :]))\n    "
            "tl.store(scratch + at, a * 2)\n    tl.store(scratch + at + 1, b * 2)",
            "",
        ),
        (
            "tl.store(scratch + cols // 2, v)",
            "two lanes of program (0, 0, 0) store different values to one element of `scratch`",
        ),
        ("tl.store(scratch + cols // 2, v * 0)", ""),
    ],
)
def test_threads_that_share_values_in_memory_need_a_barrier(
    interpreter: Zygote, body: str, words: str
) -> None:
    x, scratch, counts, out = (
        dense(0, (40,), "float32"),
        dense(1, (64,), "float32"),
        dense(2, (64,), "int32"),
        dense(3, (40,), "float32"),
    )
    step = launch(
        "kernel", (1, 1, 1), {"BLOCK": 64}, x0=x, scratch=scratch, counts=counts, out=out, n=40
    )
    # What is there already, and may be read before it is changed.
    steps = (Fill(scratch, 1.0), Fill(counts, 7), step)
    plan = LaunchPlan(buffers_of(x, scratch, counts, out, inputs=1), (x,), steps, (out,))
    answers = run(
        interpreter, SCRATCH.format(body=body), Execution(plan, (torch.arange(40.0) ** 2,))
    )
    if words:
        found = rejection(answers)
        assert (found.stage, found.guard) == (
            "honest",
            "not_deterministic",
        ) and words in found.reason
    else:
        assert isinstance(answers[0], Executed), answers


@pytest.mark.parametrize(
    ("store", "counter", "ordered"),
    [
        ("tl.store(parts + row * n + cols, v, mask=mask)", "count", False),
        ("tl.store(parts + row * n + cols, v, mask=mask)\n    tl.debug_barrier()", "count", True),
        ("tl.store(parts + row * n, tl.sum(v))", "count", True),
        ("tl.store(parts + row * n, tl.sum(v))", "count + tl.arange(0, 2)", False),
    ],
)
def test_a_ticket_covers_one_thread_or_stores_before_a_barrier(
    interpreter: Zygote, store: str, counter: str, ordered: bool
) -> None:
    body = f"{store}\n    done = tl.max(tl.atomic_add({counter}, 1) + tl.zeros((1,), tl.int32), 0)\n    if done == 2:\n        "
    body += "v += tl.load(parts + (row + 1) % 3 * n)"
    text = ROW.replace("kernel(x0, out", "kernel(x0, parts, count, out").format(
        body=body, result="v"
    )
    x, parts, count, out = (
        dense(0, (3, 40), "float32"),
        dense(1, (3, 40), "float32"),
        dense(2, (2,), "int32"),
        dense(3, (3, 40), "float32"),
    )
    step = launch("kernel", (3, 1, 1), {"BLOCK": 64}, x0=x, parts=parts, count=count, out=out, n=40)
    plan = LaunchPlan(
        buffers_of(x, parts, count, out, inputs=1), (x,), (Fill(count, 0), step), (out,)
    )
    answers = run(interpreter, text, Execution(plan, (torch.ones(3, 40),)))
    assert (
        isinstance(answers[0], Executed)
        if ordered
        else rejection(answers).guard == "not_deterministic"
    ), answers
