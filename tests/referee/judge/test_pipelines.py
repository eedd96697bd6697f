"""Loops whose loads the compiler makes turns ahead: which these are, by Triton's own compiler too,
and what is in order in them.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.pipelines import inlined_barriers, stages
from referee.plans.plan import Fill, LaunchPlan
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

CARRIED = (
    HEADER
    + """
@triton.jit
def keep(at, value):
    tl.store(at, value)
    tl.debug_barrier()

@triton.jit
def kept(at, value):
    keep(at, value)

@triton.jit(noinline=True)
def aside(at, value):
    tl.store(at, value)
    tl.debug_barrier()

@triton.jit
def kernel(x0, carry, ticket, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for start in {turns}:
        x = tl.load(x0 + start + cols, mask=start + cols < n, other=0.0)
        before = {load}
        tl.store(out + start + cols, x + before, mask=start + cols < n)
        {store}
"""
)
AHEAD = "tl.range(0, n, BLOCK, num_stages=3)"
LOAD = "tl.load(carry + cols * 0)"
TICKET = "tl.store(carry, tl.sum(x))\n        if tl.atomic_add(ticket, 1) < 0:\n            tl.store(carry, 0.0)"
BARRIER = "tl.store(carry, tl.sum(x))\n        tl.debug_barrier()"
CASES = {
    "by a ticket": (AHEAD, LOAD, TICKET, True),
    "by position": ("tl.range(0, n, BLOCK, 3)", LOAD, TICKET, True),
    "a constant": ("tl.range(0, n, BLOCK, num_stages=STAGES)", LOAD, TICKET, True),
    "one value": (AHEAD, "tl.load(carry)", TICKET, True),
    "volatile": (AHEAD, "tl.load(carry + cols * 0, volatile=True)", TICKET, True),
    "a barrier aside": (AHEAD, LOAD, "aside(carry, tl.sum(x))", True),
    "of an atomic": (
        AHEAD,
        LOAD,
        "if tl.atomic_add(carry, tl.sum(x)) == -1.5:\n            break_ = 0",
        True,
    ),
    "a barrier": (AHEAD, LOAD, BARRIER, False),
    "an inlined barrier": (AHEAD, LOAD, "keep(carry, tl.sum(x))", False),
    "a barrier further in": (AHEAD, LOAD, "kept(carry, tl.sum(x))", False),
    "plain": ("range(0, n, BLOCK)", LOAD, TICKET, False),
    "one stage": ("tl.range(0, n, BLOCK, num_stages=1)", LOAD, TICKET, False),
    "unrolled": ("tl.static_range(0, 256, BLOCK)", LOAD, TICKET, False),
    "waiting": (
        AHEAD,
        LOAD,
        "tl.store(carry, tl.sum(x))\n        while tl.atomic_add(ticket, 1) < 0:\n            pass",
        False,
    ),
}


def text_of(case: str) -> str:
    turns, load, store, _ = CASES[case]
    return CARRIED.format(turns=turns, load=load, store=store)


@pytest.mark.parametrize("case", CASES)
def test_the_compiler_moves_loads_ahead_of_earlier_code(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernels.py"
    path.write_text(text_of(case))
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    types = {
        "x0": "*fp32",
        "carry": "*fp32",
        "ticket": "*i32",
        "out": "*fp32",
        "n": "i32",
        "BLOCK": "constexpr",
        "STAGES": "constexpr",
    }
    source = ASTSource(fn=module.kernel, signature=types, constexprs={(5,): 64, (6,): 3})
    made: Any = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    # Two loads in two turns before the loop, and in it.
    assert made.asm["ttgir"].count("ttg.async_copy_global_to_local") == (6 if CASES[case][3] else 0)


@pytest.mark.parametrize("case", CASES)
def test_a_load_made_ahead_sees_nothing_that_its_loop_did(interpreter: Zygote, case: str) -> None:
    x, carry, ticket, out = (
        dense(0, (256,), "float32"),
        dense(1, (1,), "float32"),
        dense(2, (1,), "int32"),
        dense(3, (256,), "float32"),
    )
    step = launch(
        "kernel",
        (1, 1, 1),
        {"BLOCK": 64, "STAGES": 3},
        x0=x,
        carry=carry,
        ticket=ticket,
        out=out,
        n=256,
    )
    plan = LaunchPlan(
        buffers_of(x, carry, ticket, out, inputs=1),
        (x,),
        (Fill(carry, 0.0), Fill(ticket, 0), step),
        (out,),
    )
    answers = run(interpreter, text_of(case), Execution(plan, (torch.ones(256),)))
    if CASES[case][3]:
        assert "another thread of it uses the element" in rejection(answers).reason
    else:
        assert isinstance(answers[0], Executed), answers


SHARED = (
    HEADER
    + """
@triton.jit
def kernel(ticket, total):
    {body}
"""
)
TOLD = """if tl.program_id(0) == 0:
        tl.store(total, 5.0)
        tl.atomic_xchg(ticket, 1)
    else:
        for turn in {turns}:
            if tl.atomic_add(ticket, 0) == 1:
                tl.store(total + 1, tl.load(total))"""
AFTER = """for turn in {turns}:
        tl.store(total, 1.0)
    if tl.atomic_add(ticket, 1) == 0:
        tl.store(total + 1, tl.load(total))"""
INSIDE = """for turn in {turns}:
        tl.store(total, 1.0)
        if tl.atomic_add(ticket, 1) >= 0:
            for step in tl.range(2, num_stages=2):
                tl.store(total + 1, tl.load(total))"""


def totals(zygote: Zygote, body: str, turns: str, *, programs: int = 1) -> list[float] | str:
    """What is in two values in the end, or why that is rejected."""
    ticket, total = dense(0, (1,), "int32"), dense(1, (2,), "float32")
    step = launch("kernel", (programs, 1, 1), {}, ticket=ticket, total=total)
    plan = LaunchPlan(
        buffers_of(ticket, total, inputs=0), (), (Fill(ticket, 0), Fill(total, 0.0), step), (total,)
    )
    answers = run(zygote, SHARED.format(body=body.format(turns=turns)), Execution(plan, ()))
    return (
        answers[0].outputs[0].tolist()
        if isinstance(answers[0], Executed)
        else rejection(answers).reason
    )


def test_a_release_inside_the_loop_is_not_seen_ahead(interpreter: Zygote) -> None:
    assert totals(interpreter, TOLD, "range(3)", programs=2) == [5.0, 5.0]
    assert "use the same element of `total`" in str(
        totals(interpreter, TOLD, "tl.range(3, num_stages=2)", programs=2)
    )


def test_after_such_a_loop_loads_are_where_they_stand(interpreter: Zygote) -> None:
    assert totals(interpreter, AFTER, "tl.range(3, num_stages=2)") == [1.0, 1.0]


def test_a_loop_in_such_a_loop_is_held_to_be_a_part_of_it(interpreter: Zygote) -> None:
    assert totals(interpreter, INSIDE, "range(3)") == [1.0, 1.0]
    assert "another thread of it uses the element" in str(
        totals(interpreter, INSIDE, "tl.range(3, num_stages=2)")
    )


def test_a_volatile_load_sees_own_stores_only_behind_a_barrier(interpreter: Zygote) -> None:
    text = (
        HEADER
        + """
@triton.jit
def kernel(out):
    at = tl.arange(0, 64)
    tl.store(out + at, at)
    {between}
    other = tl.load(out + 63 - at, volatile=True)
    tl.debug_barrier()
    tl.store(out + at, other)
"""
    )
    out = dense(0, (64,), "int32")
    plan = LaunchPlan(
        buffers_of(out, inputs=0), (), (launch("kernel", (1, 1, 1), {}, out=out),), (out,)
    )
    behind = run(interpreter, text.format(between="tl.debug_barrier()"), Execution(plan, ()))[0]
    assert isinstance(behind, Executed) and behind.outputs[0].tolist() == list(range(63, -1, -1))
    assert (
        "another thread of it uses"
        in rejection(run(interpreter, text.format(between="pass"), Execution(plan, ()))).reason
    )


@pytest.mark.parametrize(
    ("turns", "body", "expected"),
    [
        ("tl.range(4, num_stages=2)", "x = 1", "2"),
        ("tl.range(4)", "x = tl.dot(x, x)", "None"),
        ("range(4)", "x += tl.dot(x, x)", "None"),
        ("range(4)", "for k in range(4):\n        x += tl.dot(x, x)", "None"),
        ("range(4)", "x += tl.dot(x, x)\n    tl.debug_barrier()", None),
        ("range(4)", "while x > 1:\n        x = tl.dot(x, x)", "None"),
        (
            "range(4)",
            "while tl.load(x, volatile=True) > 1:\n        pass\n    x = tl.dot(x, x)",
            None,
        ),
        ("tl.static_range(4)", "x = tl.dot(x, x)", None),
        ("tl.range(4)", "x = 1", None),
    ],
)
def test_loops_with_stages_or_products_are_pipelined(
    turns: str, body: str, expected: str | None
) -> None:
    loop = ast.parse(f"for i in {turns}:\n    {body}").body[0]
    assert isinstance(loop, ast.For)
    found = stages(loop, inlined_barriers([]))
    assert (found if found is None else ast.unparse(found)) == expected
