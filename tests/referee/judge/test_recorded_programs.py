"""The CPU path: programs played from a tape do what they do when their Python is run, and tell the
same of what is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from referee.interpreter import interpret
from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.recorded_program import RecordedCall, compact
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import Limits, Zygote
from tests.referee.by_version import needs_block_pointers, needs_words_for_block_pointers
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import rowwise

JOBS = Path(__file__).with_name("jobs")
ROWS, WIDTH = 5, 40
HELPER = """
@triton.jit
def helper(v, row):
    if row is None:
        return v
    return v * 3 + row

@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)
"""
STORED = "tl.store(out + row * n + cols, v, mask=mask)\n    tl.debug_barrier()"

PLAYED = {
    "plain arithmetic": "v = v * 2.0 + n",
    "reductions": "v = (v - tl.sum(v, axis=0) / n) * tl.max(v, axis=0)",
    "a reduction with two results": "top, place = tl.max(v, axis=0, return_indices=True)\n    v = v - top + place",
    "a reduction by a combiner of its own": "v = v + tl.reduce(v, 0, larger)",
    "a scan": "v = tl.cumsum(v, axis=0)",
    "a sort": "v = tl.sort(v)",
    "helpers": "v = helper(helper(v, None), row)",
    "libdevice": "v = libdevice.tanh(libdevice.fma(v, v, v))",
    "random numbers": "v = v + tl.rand(7, row * BLOCK + cols)",
    "casts": "v = v.to(tl.bfloat16).to(tl.int32).to(tl.float32, bitcast=True) + (v * 100).to(tl.int8)",
    "blocks of two dimensions": "v = v + tl.reshape(tl.trans(tl.reshape(v, (8, 8))), (64,)) + tl.sum(v[:, None] * v[None, :], axis=1)",
    "a split and a join": "a, b = tl.split(tl.reshape(v, (32, 2)))\n    v = tl.reshape(tl.join(b, a), (64,))",
    "a product": "m = tl.reshape(tl.join(v, v), (16, 8))\n    v = v + tl.sum(tl.dot(m, tl.trans(m)))",
    "a loop up to an argument": "for step in range(0, n, 16):\n        v += step",
    "a loop up to what is made of arguments": "for step in range(tl.cdiv(n, 16)):\n        v += tl.load(x0 + row * n + (cols + step) % n)",
    "barriers": f"{STORED}\n    v = tl.load(out + row * n + (cols + 1) % n)\n    tl.debug_barrier()",
    "true hints": "v = v + 0 * tl.multiple_of(row * 16, 16)\n    tl.assume(row < 5)",
    "an address as a number": "v = v + (x0 + row).to(tl.int64) * 0",
}
LOOPS = frozenset({"a loop up to an argument", "a loop up to what is made of arguments"})
RUN = {
    "a branch on the program's number": "if row == 1:\n        v = v * 2.0",
    "a loop up to the program's number": "for step in range(row):\n        v += step",
    "a choice by the program's number": "v = v * 2.0 if row > 2 else v",
    "a loop up to what is loaded": "for step in range(tl.load(x0 + row * n).to(tl.int32)):\n        v += 1.0",
    "an atomic": f"{STORED}\n    tl.atomic_add(out + row * n, 0.0)\n    tl.debug_barrier()",
    "a pointer to a block": "p = tl.make_block_ptr(x0, (5, 40), (40, 1), (0, 0), (1, 64), (1, 0))\n"
    "    p = tl.advance(p, (row, 0))\n    v = v + tl.reshape(tl.load(p, boundary_check=(1,)), (64,))",
}
WRONG = {
    "a false hint": ("v = v + 0 * tl.multiple_of(row * 8, 16)", "8 is no multiple of 16"),
    "a false assumption": ("tl.assume(row < 4)", "the condition of tl.assume is not true"),
    "a read past the end": (
        "v = v + tl.load(x0 + n + row * n + cols, mask=mask)",
        "program (4, 0, 0) reads 40 elements past",
    ),
    "a write past the end": (
        "tl.store(out + (row + 1) * n, 0.0)",
        "program (4, 0, 0) writes 1 element past the end of `out`",
    ),
    "programs that write the same": (
        "tl.store(out + 4 * n, row * 1.0, mask=row < 4)",
        "programs (0, 0, 0) and (1, 0, 0) use the same",
    ),
    "memory that nothing wrote": (
        "v = v + tl.load(out + row * n + cols, mask=mask)",
        "reads 40 elements of `out` that nothing has",
    ),
    "a change of an input": (
        "tl.store(x0 + row * n + cols, v + 1, mask=mask & (row == 3))",
        "(3, 0, 0) changes the input `x0`",
    ),
    "lanes that write the same": (
        "tl.store(out + row * n + cols // 2, cols * 1.0, mask=mask & (row == 2))",
        "two lanes of",
    ),
    "a row that the next program reads": (
        f"{STORED}\n    v = v + tl.load(out + tl.where(row < 4, row + 1, 0) * n + cols, mask=mask)",
        "use the same element of `out`",
    ),
    "an index out of range": (
        "v = tl.gather(v, tl.where(cols < 60 + row, 0, cols + row), 0)",
        "tl.gather has 64 places",
    ),
}


@pytest.fixture(scope="module")
def others() -> Iterator[Zygote]:
    """A fork server for the jobs of this file."""
    with Zygote(interpret=True, extra_path=(str(JOBS),)) as zygote:
        yield zygote


def text_of(body: str) -> str:
    header = "from triton.language.extra import libdevice\n"
    return header + ROW.replace("@triton.jit", HELPER + "\n@triton.jit", 1).format(
        body=body, result="v"
    )


def ways(plan: LaunchPlan, *shape: int) -> list[Execution]:
    """Runs at different addresses, in either order, with sums in either order."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).abs() * 3
    return [
        Execution(plan, (x,)), Execution(plan, (x,), reverse=True, backwards=True), Execution(plan, (x,), relaxed=True),
        Execution(plan, (x * 2,), relaxed=True, backwards=True),
    ]  # fmt: skip


def tapes(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, body: str, *executions: Execution
) -> list[int | None]:
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:told")
    found = re.search(r"\[[^]]*\]", rejection(run(others, text_of(body), *executions)).reason)
    assert found
    made: list[int | None] = json.loads(found[0])
    return made


def batches(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, body: str, *executions: Execution
) -> list[int]:
    """How many programs of each launch ran at once."""
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:batched")
    found = re.search(r"\[[^]]*\]", rejection(run(others, text_of(body), *executions)).reason)
    assert found
    played: list[int] = json.loads(found[0])
    return played


BLOCK_POINTER = "a pointer to a block"
RUN_HERE = [
    pytest.param(name, marks=needs_block_pointers if name == BLOCK_POINTER else ()) for name in RUN
]


@pytest.mark.parametrize("name", [*PLAYED, *RUN_HERE])
def test_a_tape_gives_the_same_bits(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body = (PLAYED | RUN)[name]
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    played = run(interpreter, text_of(body), *ways(plan, ROWS, WIDTH))
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:without_tapes")
    wanted = run(others, text_of(body), *ways(plan, ROWS, WIDTH))
    assert len(played) == len(wanted) == 4
    for one, other in zip(played, wanted, strict=True):
        assert isinstance(one, Executed) and isinstance(other, Executed), (one, other)
        assert torch.equal(one.outputs[0].view(torch.int32), other.outputs[0].view(torch.int32))


@pytest.mark.parametrize("name", PLAYED)
def test_programs_that_do_the_same_have_a_tape(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    made = tapes(others, monkeypatch, PLAYED[name], *ways(plan, ROWS, WIDTH))
    # Where Python looks at `n`, the first attempt, for any `n`, comes to nothing.
    assert [bool(steps) for steps in made] == ([False, True] * 2 if name in LOOPS else [True] * 2)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs_words_for_block_pointers if name == BLOCK_POINTER else ())
        for name in RUN
    ],
)
def test_programs_that_may_do_something_else_have_none(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    assert tapes(others, monkeypatch, RUN[name], *ways(plan, ROWS, WIDTH)) == [None] * 4


def test_a_program_of_very_many_operations_has_none(
    others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = rowwise("kernel", (2, WIDTH), "float32", block=64)
    body = "for step in range(0, {turns} * n):\n        v += step"
    few, many = (
        tapes(others, monkeypatch, body.format(turns=turns), *ways(plan, 2, WIDTH)[:1])
        for turns in (10, 600)
    )
    assert few[1] and few[1] > 400 and many == [None, None]


@pytest.mark.parametrize("name", WRONG)
def test_a_later_programs_mistake_is_reported_as_without_a_tape(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body, words = WRONG[name]
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    played = run(interpreter, text_of(body), *ways(plan, ROWS, WIDTH))
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:without_tapes")
    assert played == run(others, text_of(body), *ways(plan, ROWS, WIDTH))
    assert words in rejection(played).reason


@pytest.mark.parametrize("name", sorted({*PLAYED} - {"barriers", "casts"}))
def test_programs_apart_run_at_once(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All programs of a launch but those that are recorded are one batch, and all of them where
    there is a tape already.
    """
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    recorded = 2 if name in LOOPS else 1
    assert (
        batches(others, monkeypatch, PLAYED[name], *ways(plan, ROWS, WIDTH))
        == [ROWS - recorded, ROWS] * 2
    )


@pytest.mark.parametrize(
    "body",
    [
        PLAYED["barriers"],
        PLAYED["casts"],
        "tl.store(out + row * n + cols, v, mask=mask)\n    tl.debug_barrier()",
        "v = v + tl.load(x0 + row * n + cols, mask=mask, other=0.0, volatile=True)",
    ],
)
def test_programs_that_may_depend_on_others_run_alone(
    others: Zygote, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """What reads or writes a stored element again, has bits that nothing determines, or must be
    loaded when it is reached.
    """
    plan = rowwise("kernel", (ROWS, WIDTH), "float32", block=64)
    assert batches(others, monkeypatch, body, *ways(plan, ROWS, WIDTH)) == [0, 0, 0, 0]


def test_large_blocks_come_in_batches_of_few(
    others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many programs of small blocks as there are, and one after the other of those that fill a
    cache.
    """
    for block in (1 << 10, 1 << 13, 1 << 15):
        plan = rowwise("kernel", (8, WIDTH), "float32", block=block)
        assert batches(others, monkeypatch, "v = v * 2.0", *ways(plan, 8, WIDTH)[:1]) == [7]


def test_other_numbers_for_arguments_have_another_tape(
    others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "for step in range(tl.cdiv(n, 16)):\n        v += step"
    plans = [
        rowwise("kernel", (2, width), dtype, block=64)
        for width in (40, 16)
        for dtype in ("float32", "float16")
    ]
    steps = tapes(
        others,
        monkeypatch,
        body,
        *(Execution(plan, (torch.ones(plan.inputs[0].shape),)) for plan in plans),
    )
    wide, narrow = steps[1], steps[4]
    assert wide and narrow and wide > narrow
    assert steps == [None, wide, None, wide, narrow, narrow]


def test_one_tape_serves_all_numbers(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that only calculates with an argument is recorded once for all widths, and does what
    its Python does.
    """
    plans = [rowwise("kernel", (2, width), "float32", block=64) for width in (40, 16, 64)]
    runs = [Execution(plan, (torch.rand(plan.inputs[0].shape),)) for plan in plans]
    assert len(tapes(others, monkeypatch, "v = v * n + tl.sum(v, axis=0)", *runs)) == 1
    monkeypatch.undo()
    played = run(interpreter, text_of("v = v * n + tl.sum(v, axis=0)"), *runs)
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:without_tapes")
    wanted = run(others, text_of("v = v * n + tl.sum(v, axis=0)"), *runs)
    for one, other in zip(played, wanted, strict=True):
        assert isinstance(one, Executed) and isinstance(other, Executed), (one, other)
        assert torch.equal(one.outputs[0], other.outputs[0])


@pytest.mark.parametrize("value", ["n // (n - n)", "(n * 1e30).to(tl.int32)", "n << (n + 32)"])
def test_what_is_left_open_is_no_constant(interpreter: Zygote, value: str) -> None:
    plan = rowwise("kernel", (2, 8), "float32", block=8)
    x = torch.zeros(2, 8)
    text = text_of(f"v = v + ({value}).to(tl.float32)")
    first, again = run(
        interpreter, text, Execution(plan, (x,)), Execution(plan, (x,), backwards=True)
    )
    assert isinstance(first, Executed) and isinstance(again, Executed)
    assert not torch.equal(first.outputs[0], again.outputs[0])


def test_what_is_remembered_is_what_triton_works_out(others: Zygote) -> None:
    outcome = others.run("memoized_job:compared", b"", limits=Limits(60.0, 1 << 30, 1 << 24))
    assert outcome.status == "ok", outcome
    before, once, again = json.loads(outcome.data)
    assert len(before[0]) > 150 and len(before[1]) > 10
    assert once == before and again == before


def add(left: int, right: int) -> int:
    return left + right


def test_a_tape_takes_few_places() -> None:
    """Each number is used once; a constant and a pointer keep their places."""
    steps = [
        RecordedCall(
            name="add",
            function=add,
            given=[None, None],
            single=[(0, place), (1, 0)],
            results=[place + 1],
        )
        for place in range(1, 40)
    ]
    tape = compact(steps, [100, *([None] * 40)], [1])
    kept: list[int] = []
    last = RecordedCall(
        name="keep", function=lambda value: kept.append(value), given=[None], single=[(0, 40)]
    )
    whole = compact([*steps, last], [100, *([None] * 40)], [1])
    for pointer in (7, 8):
        whole.replay([pointer])
    assert kept == [7 + 3900, 8 + 3900]
    assert len(whole.start) == len(tape.start) == 3


def test_a_tape_puts_lists_and_several_results_in_their_places() -> None:
    kept: list[object] = []
    steps = [
        RecordedCall(
            name="divmod", function=divmod, given=[None, 7], single=[(0, 1)], results=[2, 3]
        ),
        RecordedCall(
            name="keep",
            function=lambda given, word: kept.append((given, word)),
            given=[None, "w"],
            several=[(0, [3, 0, 2])],
        ),
    ]
    compact(steps, ["constant", None, None, None], [1]).replay([38])
    assert kept == [([3, "constant", 5], "w")]
