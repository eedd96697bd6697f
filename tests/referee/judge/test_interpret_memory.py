"""The CPU path: what a kernel reads, writes, leaves behind and shares between programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from referee.interpreter.init_map import InitMap
from referee.interpreter.interpret import Executed, Execution
from referee.plans.arena import FILL_PATTERNS, HUGE, NAN, layout
from referee.plans.plan import Copy, Fill, LaunchPlan, Step
from referee.sandbox.zygote import Zygote
from tests.referee.by_version import needs_block_pointers
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise


def test_fills_copies_and_several_launches_happen_in_order(interpreter: Zygote) -> None:
    x, scratch, out = (
        dense(0, (2, 20), "float16"),
        dense(1, (2, 20), "float32"),
        dense(2, (2, 20), "float32"),
    )
    add = launch("kernel", (2, 1, 1), {"BLOCK": 64}, x0=scratch, out=out, n=20)
    again = launch("kernel", (2, 1, 1), {"BLOCK": 64}, x0=out, out=out, n=20)
    steps = (Copy(scratch, x), Fill(dense(1, (20,), "float32"), 7.0), add, again)
    plan = LaunchPlan(buffers_of(x, scratch, out, inputs=1), (x,), steps, (out,))
    data = torch.randn(2, 20).half()
    answer = run(interpreter, ROW.format(body="pass", result="v + 1"), Execution(plan, (data,)))[0]
    assert isinstance(answer, Executed), answer
    expected = data.float()
    expected[0] = 7.0
    torch.testing.assert_close(answer.outputs[0], expected + 2)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("v = tl.load(x0 + row * n + cols)", "reads 24 elements past the end of `x0`"),
        ("v = tl.load(x0 + cols - 1, mask=mask)", "reads 1 element before the start of `x0`"),
        ("tl.store(out + row * n + cols, v)", "writes 24 elements past the end of `out`"),
        ("tl.store(out - 1 + cols, v, mask=mask)", "writes 1 element before the start of `out`"),
        (
            "tl.atomic_add(out + 3 * n + cols, v, mask=cols < 2)",
            "updates 2 elements past the end of `out`",
        ),
        pytest.param(
            "block = tl.make_block_ptr(x0, (3, 48), (40, 1), (row, 0), (1, 64), (1, 0))\n    w = tl.load(block, boundary_check=(1,))",
            "reads 8 elements past",
            marks=needs_block_pointers,
        ),
        ("v = tl.load(x0 + (1 << 40) + cols)", "reads 64 elements past the end of"),
    ],
)
def test_reaching_outside_a_buffer_is_named_before_it_happens(
    interpreter: Zygote, body: str, words: str
) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    found = rejection(
        run(
            interpreter,
            ROW.format(body=body, result="v"),
            Execution(plan, (torch.zeros(3, 40),), backwards=True),
        )
    )
    assert found.guard == "out_of_bounds" and words in found.reason, found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "w = tl.load((x0.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.int32)))",
            "reads 4 bytes of `x0` at an address",
        ),
        ("w = tl.load(x0.to(tl.pointer_type(tl.int64)) + cols, mask=cols < 2)", ""),
        (
            "w = tl.load((x0 + row * n + 1).to(tl.pointer_type(tl.int64)) + cols, mask=cols < 2)",
            "is no multiple of 8, which a GPU cannot do",
        ),
        ("w = tl.load((x0 + 1).to(tl.pointer_type(tl.int64)) + cols, mask=cols < 0)", ""),
        (
            "tl.store((out.to(tl.pointer_type(tl.int8)) + 1).to(tl.pointer_type(tl.int16)), 0)",
            "writes 2 bytes of `out` at an address",
        ),
        (
            "tl.atomic_add((out.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.int32)), 0)",
            "updates 4 bytes of `out` at an address",
        ),
        (
            "tl.atomic_cas((out + 1).to(tl.pointer_type(tl.int64)), tl.cast(0, tl.int64), tl.cast(0, tl.int64))",
            "updates 8 bytes of `out` at an address",
        ),
    ],
)
def test_an_address_is_a_multiple_of_its_item(interpreter: Zygote, body: str, words: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    answers = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.zeros(3, 40),))
    )
    if words:
        found = rejection(answers)
        assert (found.stage, found.guard) == (
            "correct",
            "kernel_error",
        ) and words in found.reason, found
    else:
        assert isinstance(answers[0], Executed), answers


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(x0 + row * n + cols, v * 0, mask=mask)",
        "tl.store(x0 + row * n + cols, v * 0, mask=mask)\n    tl.store(x0 + row * n + cols, v, mask=mask)",
        "tl.atomic_add(x0 + row * n + cols, v, mask=mask)\n    tl.atomic_add(x0 + row * n + cols, -v, mask=mask)",
        "tl.atomic_cas(x0.to(tl.pointer_type(tl.int32)), 0x3F800000, 7)\n    tl.store(x0, 1.0)",
    ],
)
def test_writing_an_input_is_found_though_it_be_put_back(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    found = rejection(
        run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),)))
    )
    assert (found.stage, found.guard) == (
        "honest",
        "input_mutated",
    ) and "program (0, 0, 0) changes the input `x0`" in found.reason


@pytest.mark.parametrize(
    "body",
    ["tl.store(x0 + row * n + cols, v, mask=mask)", "v += tl.atomic_add(x0 + row * n, 0.0) * 0"],
)
def test_storing_what_an_input_holds_changes_nothing(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    answers = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),))
    )
    assert isinstance(answers[0], Executed), answers


def test_unwritten_outputs_show_the_poison(interpreter: Zygote) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=32)
    x = torch.ones(3, 40)
    answers = run(
        interpreter,
        ROW.format(body="pass", result="v"),
        Execution(plan, (x,), NAN),
        Execution(plan, (x,), HUGE, reverse=True),
    )
    first, second = (answer.outputs[0] for answer in answers if isinstance(answer, Executed))
    assert (
        first[:, :32].eq(1).all() and first[:, 32:].isnan().all() and (second[:, 32:] > 1e30).all()
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("v += tl.load(out + row * n + cols, mask=mask, other=0.0)", "program (0, 0, 0) reads 40 elements of `out`"),
        ("v += tl.load(out + row * n) * 0.0\n    tl.debug_barrier()", "program (0, 0, 0) reads 1 element of `out`"),
        ("v = tl.where(tl.load(out + row * n) < 0.0, 0.0, v)\n    tl.debug_barrier()", "reads 1 element of `out`"),
        ("v += tl.atomic_add(out + row * n, 1.0) * 0.0", "reads 1 element of `out`"),
        (
            "tl.store(out + row * n + cols, v, mask=cols < n - 1)\n    tl.debug_barrier()\n    v += tl.load(out + row * n + n - 1)\n"
            "    tl.debug_barrier()",
            "reads 1 element of `out`",
        ),
    ],
)  # fmt: skip
def test_reading_what_nothing_has_written_is_named(
    interpreter: Zygote, body: str, words: str
) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    for poison in FILL_PATTERNS:
        found = rejection(
            run(
                interpreter,
                ROW.format(body=body, result="v"),
                Execution(plan, (torch.ones(3, 40),), poison),
            )
        )
        assert (found.stage, found.guard) == ("honest", "not_deterministic")
        assert words in found.reason and "that nothing has written" in found.reason, found


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(out + row * n + cols, v, mask=mask)\n    tl.debug_barrier()\n    v = tl.load(out + row * n + cols, mask=mask)",
        "v += tl.load(out + row * n + cols, mask=cols < 0, other=0.0)",
        "tl.atomic_xchg(out + row * n, 1.0)\n    tl.debug_barrier()\n    v += tl.load(out + row * n) - 1.0\n    tl.debug_barrier()",
    ],
)
def test_reading_what_was_written_is_right(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    answers = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),))
    )
    assert isinstance(answers[0], Executed) and answers[0].outputs[0].eq(1).all(), answers


def test_an_item_is_written_when_all_of_its_bytes_are() -> None:
    half, copied = dense(0, (4,), "int16"), dense(1, (4,), "int16")
    places = layout(LaunchPlan(buffers_of(half, copied, inputs=0), (), (), ()), reverse=False)
    written = InitMap(places, 0)
    starts = [np.arange(slot.start, slot.end, 2, dtype=np.uint64) for slot in places.slots]
    assert written.uninitialized(starts[0], 2).all()
    written.note(starts[0] + np.uint64(1), 1)
    written.note(starts[0][:1], 1)
    written.copy(half, copied)
    for start in starts:
        assert written.uninitialized(start, 2).tolist() == [False, True, True, True]


@pytest.mark.parametrize("missing", ["", "fill", "copy", "launch"])
def test_what_steps_and_earlier_launches_wrote_is_written(
    interpreter: Zygote, missing: str
) -> None:
    filled, copied, half, out = (
        dense(0, (4,), "int32"),
        dense(1, (2, 4), "float16"),
        dense(2, (8,), "int8"),
        dense(3, (1,), "float32"),
    )
    text = (
        HEADER
        + """
@triton.jit
def first(half):
    tl.store(half + tl.arange(0, 8), tl.arange(0, 8).to(tl.int8))


@triton.jit
def second(copied, half, out):
    at = tl.arange(0, 8)
    tl.store(out, tl.sum(tl.load(copied + at).to(tl.float32) + tl.load(half + at).to(tl.float32), axis=0))
"""
    )
    steps: dict[str, Step] = {
        "fill": Fill(filled, 3),
        "copy": Copy(copied, filled),
        "launch": launch("first", (1, 1, 1), {}, half=half),
        "last": launch("second", (1, 1, 1), {}, copied=copied, half=half, out=out),
    }
    kept = tuple(step for name, step in steps.items() if name != missing)
    plan = LaunchPlan(buffers_of(filled, copied, half, out, inputs=0), (), kept, (out,))
    answers = run(interpreter, text, Execution(plan, ()))
    if missing:
        name = "half" if missing == "launch" else "copied"
        assert f"reads 8 elements of `{name}` that nothing has written" in rejection(answers).reason
    else:
        assert isinstance(answers[0], Executed) and answers[0].outputs[0].item() == 24 + 28


def test_backwards_runs_programs_in_the_other_order(interpreter: Zygote) -> None:
    out = dense(0, (1,), "float32")
    # With atomics around it a store is in order, whichever order that is.
    store = "    tl.atomic_add(out, 0.0)\n    tl.store(out, tl.program_id(0) + 10.0 * tl.program_id(1))\n    tl.atomic_add(out, 0.0)\n"
    text = HEADER + "\n@triton.jit\ndef kernel(out):\n" + store
    steps = (Fill(out, 0.0), launch("kernel", (2, 3, 1), {}, out=out))
    plan = LaunchPlan(buffers_of(out, inputs=0), (), steps, (out,))
    answers = run(interpreter, text, Execution(plan, ()), Execution(plan, (), backwards=True))
    assert [answer.outputs[0].item() for answer in answers if isinstance(answer, Executed)] == [
        21.0,
        0.0,
    ]
