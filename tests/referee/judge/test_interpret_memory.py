"""The CPU path: what a kernel reads, writes, leaves behind and shares between programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.written import Written
from referee.plans.arena import HUGE, NAN, POISONS, ZERO, layout
from referee.plans.plan import Copy, Fill, LaunchPlan, Step
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise


def test_fills_copies_and_several_launches_happen_in_order(interpreter: Zygote) -> None:
    x, scratch, out = dense(0, (2, 20), "float16"), dense(1, (2, 20), "float32"), dense(2, (2, 20), "float32")
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
        ("tl.atomic_add(out + 3 * n + cols, v, mask=cols < 2)", "updates 2 elements past the end of `out`"),
        (
            "block = tl.make_block_ptr(x0, (3, 48), (40, 1), (row, 0), (1, 64), (1, 0))\n    w = tl.load(block, boundary_check=(1,))",
            "reads 8 elements past",
        ),
        ("v = tl.load(x0 + (1 << 40) + cols)", "reads 64 elements past the end of"),
    ],
)
def test_reaching_outside_a_buffer_is_named_before_it_happens(interpreter: Zygote, body: str, words: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    found = rejection(run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.zeros(3, 40),), backwards=True)))
    assert found.guard == "out_of_bounds" and words in found.reason, found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("w = tl.load((x0.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.int32)))", "reads 4 bytes of `x0` at an address"),
        ("w = tl.load(x0.to(tl.pointer_type(tl.int64)) + cols, mask=cols < 2)", ""),
        (
            "w = tl.load((x0 + row * n + 1).to(tl.pointer_type(tl.int64)) + cols, mask=cols < 2)",
            "is no multiple of 8, which a GPU cannot do",
        ),
        ("w = tl.load((x0 + 1).to(tl.pointer_type(tl.int64)) + cols, mask=cols < 0)", ""),
        ("tl.store((out.to(tl.pointer_type(tl.int8)) + 1).to(tl.pointer_type(tl.int16)), 0)", "writes 2 bytes of `out` at an address"),
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
    answers = run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.zeros(3, 40),)))
    if words:
        found = rejection(answers)
        assert (found.stage, found.guard) == ("correct", "kernel_error") and words in found.reason, found
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
    found = rejection(run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),))))
    assert (found.stage, found.guard) == ("honest", "input_mutated") and "program (0, 0, 0) changes the input `x0`" in found.reason


@pytest.mark.parametrize("body", ["tl.store(x0 + row * n + cols, v, mask=mask)", "v += tl.atomic_add(x0 + row * n, 0.0) * 0"])
def test_storing_what_an_input_holds_changes_nothing(interpreter: Zygote, body: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    answers = run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),)))
    assert isinstance(answers[0], Executed), answers


def test_unwritten_outputs_show_the_poison(interpreter: Zygote) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=32)
    x = torch.ones(3, 40)
    answers = run(interpreter, ROW.format(body="pass", result="v"), Execution(plan, (x,), NAN), Execution(plan, (x,), HUGE, reverse=True))
    first, second = (answer.outputs[0] for answer in answers if isinstance(answer, Executed))
    assert first[:, :32].eq(1).all() and first[:, 32:].isnan().all() and (second[:, 32:] > 1e30).all()


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
def test_reading_what_nothing_has_written_is_named(interpreter: Zygote, body: str, words: str) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    for poison in POISONS:
        found = rejection(run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),), poison)))
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
    answers = run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),)))
    assert isinstance(answers[0], Executed) and answers[0].outputs[0].eq(1).all(), answers


def test_an_item_is_written_when_all_of_its_bytes_are() -> None:
    half, copied = dense(0, (4,), "int16"), dense(1, (4,), "int16")
    places = layout(LaunchPlan(buffers_of(half, copied, inputs=0), (), (), ()), reverse=False)
    written = Written(places, 0)
    starts = [np.arange(slot.start, slot.end, 2, dtype=np.uint64) for slot in places.slots]
    assert written.missing(starts[0], 2).all()
    written.note(starts[0] + np.uint64(1), 1)
    written.note(starts[0][:1], 1)
    written.copy(half, copied)
    for start in starts:
        assert written.missing(start, 2).tolist() == [False, True, True, True]


@pytest.mark.parametrize("missing", ["", "fill", "copy", "launch"])
def test_what_steps_and_earlier_launches_wrote_is_written(interpreter: Zygote, missing: str) -> None:
    filled, copied, half, out = dense(0, (4,), "int32"), dense(1, (2, 4), "float16"), dense(2, (8,), "int8"), dense(3, (1,), "float32")
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
    assert [answer.outputs[0].item() for answer in answers if isinstance(answer, Executed)] == [21.0, 0.0]


def test_programs_that_change_the_same_element_are_named(interpreter: Zygote) -> None:
    out = dense(0, (1,), "float32")
    text = HEADER + "\n@triton.jit\ndef kernel(out):\n    tl.store(out, tl.program_id(0) + 1.0)\n"
    plan = LaunchPlan(buffers_of(out, inputs=0), (), (launch("kernel", (2, 1, 1), {}, out=out),), (out,))
    found = rejection(run(interpreter, text, Execution(plan, ())))
    assert (found.stage, found.guard) == ("honest", "not_deterministic")
    assert "programs (0, 0, 0) and (1, 0, 0) use the same element of `out`" in found.reason


@pytest.mark.parametrize(("options", "ordered"), [("", 1), (", sem='relaxed'", 0), (", scope='cta'", 0), (", mask=row < 0", 0)])
def test_only_an_atomic_that_orders_memory_makes_a_lock(interpreter: Zygote, options: str, ordered: int) -> None:
    plan = rowwise("kernel", (3, 40), "float32", block=64)
    plan = replace(plan, steps=(Fill(plan.outputs[0], 0.0), *plan.steps))
    atomic = f"tl.atomic_add(out + n * 2, 0.0{options})"
    body = f"v += {atomic}\n    v += tl.load(out) * 0\n    tl.store(out, 1.0)\n    {atomic}\n    mask &= row < 0"
    answers = run(interpreter, ROW.format(body=body, result="v"), Execution(plan, (torch.ones(3, 40),), ZERO))
    assert isinstance(answers[0], Executed) if ordered else rejection(answers).guard == "not_deterministic", answers


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
        ("tl.store(scratch + cols, v)\n    tl.debug_barrier()\n    v = tl.load(scratch + cols)", ""),
        ("tl.store(scratch + cols, v)\n    tl.debug_barrier()\n    v = tl.load(scratch + back)", ""),
        ("tl.store(scratch, tl.sum(v))\n    tl.store(scratch, 1.0)\n    tl.debug_barrier()\n    v += tl.load(scratch)", ""),
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
        ("tl.atomic_xchg(counts + cols, cols)\n    tl.debug_barrier()\n    v += tl.load(counts + back)", ""),
        ("tl.atomic_add(counts + cols, 1)\n    tl.atomic_add(counts + cols, 2)\n    tl.store(scratch + cols, v)", ""),
        ("v += tl.atomic_add(counts, 1)\n    v += tl.load(counts)", ""),
        ("tl.atomic_add(counts, 1)\n    v += tl.load(counts)", COUNTS),
        (
            "tl.store(counts.to(tl.pointer_type(tl.int64)) + cols // 2, cols.to(tl.int64) // 2 << 32)\n    v += tl.load(counts + back)",
            COUNTS,
        ),
        ("tl.store(counts + cols, cols)\n    v += tl.load(counts.to(tl.pointer_type(tl.int64)) + back // 2)", COUNTS),
        ("tl.store(counts + 2 * cols, cols, mask=cols < 20)\n    v += tl.load(counts + 2 * cols + 1, mask=cols < 20)", ""),
        ("v += tl.load(scratch + cols) + tl.load(scratch + back)\n    tl.store(scratch + cols, v)", BARRIER),
        ("v += tl.load(scratch + back) + tl.load(scratch + cols)\n    tl.store(scratch + cols, v)", BARRIER),
        ("v += tl.load(scratch + back)\n    tl.atomic_xchg(counts + cols, cols)\n    tl.store(scratch + cols, v)", BARRIER),
        ("v += tl.load(counts + back)\n    tl.atomic_xchg(counts + cols, cols)", COUNTS),
        ("v += tl.load(scratch)\n    tl.store(scratch + cols, 2 * v)", BARRIER),
        ("v += tl.load(scratch + 0 * cols)\n    tl.store(scratch + cols, 2 * v)", BARRIER),
        ("v += tl.load(scratch + back)\n    tl.debug_barrier()\n    tl.store(scratch + cols, v)", ""),
        ("v += tl.load(scratch + back)\n    v /= tl.sum(v)\n    tl.store(scratch + cols, v)", ""),
        ("v += tl.load(scratch + back)\n    v = tl.cumsum(v, 0)\n    tl.store(scratch + cols, v)", ""),
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
        ("tl.store(scratch + cols // 2, v)", "two lanes of program (0, 0, 0) store different values to one element of `scratch`"),
        ("tl.store(scratch + cols // 2, v * 0)", ""),
    ],
)
def test_threads_that_exchange_values_through_memory_need_a_barrier(interpreter: Zygote, body: str, words: str) -> None:
    x, scratch, counts, out = dense(0, (40,), "float32"), dense(1, (64,), "float32"), dense(2, (64,), "int32"), dense(3, (40,), "float32")
    step = launch("kernel", (1, 1, 1), {"BLOCK": 64}, x0=x, scratch=scratch, counts=counts, out=out, n=40)
    # What is there already, and may be read before it is changed.
    steps = (Fill(scratch, 1.0), Fill(counts, 7), step)
    plan = LaunchPlan(buffers_of(x, scratch, counts, out, inputs=1), (x,), steps, (out,))
    answers = run(interpreter, SCRATCH.format(body=body), Execution(plan, (torch.arange(40.0) ** 2,)))
    if words:
        found = rejection(answers)
        assert (found.stage, found.guard) == ("honest", "not_deterministic") and words in found.reason
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
def test_a_ticket_is_for_what_one_thread_stored_or_all_before_a_barrier(
    interpreter: Zygote, store: str, counter: str, ordered: bool
) -> None:
    body = f"{store}\n    done = tl.max(tl.atomic_add({counter}, 1) + tl.zeros((1,), tl.int32), 0)\n    if done == 2:\n        "
    body += "v += tl.load(parts + (row + 1) % 3 * n)"
    text = ROW.replace("kernel(x0, out", "kernel(x0, parts, count, out").format(body=body, result="v")
    x, parts, count, out = dense(0, (3, 40), "float32"), dense(1, (3, 40), "float32"), dense(2, (2,), "int32"), dense(3, (3, 40), "float32")
    step = launch("kernel", (3, 1, 1), {"BLOCK": 64}, x0=x, parts=parts, count=count, out=out, n=40)
    plan = LaunchPlan(buffers_of(x, parts, count, out, inputs=1), (x,), (Fill(count, 0), step), (out,))
    answers = run(interpreter, text, Execution(plan, (torch.ones(3, 40),)))
    assert isinstance(answers[0], Executed) if ordered else rejection(answers).guard == "not_deterministic", answers
