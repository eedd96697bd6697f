"""The CPU path: programs that run at once store the same, and are told the same of each other, as
those that run in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from referee.interpreter import interpret
from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import Copy, Fill, LaunchPlan, Step
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.judge.interpreting import run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

JOBS = Path(__file__).with_name("jobs")
ROWS, WIDTH = 6, 8
KERNELS = (
    HEADER
    + """
@triton.jit
def kernel(x, scratch, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at = row * n + cols
    v = tl.load(x + at)
    late = (row > 2) & (cols >= 0)
    {body}
    tl.store(out + at, v)

@triton.jit
def first(x, scratch, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(scratch + at, tl.load(x + at) * 2)
"""
)
USED = "use the same element of `scratch`, and one changes it"

# The first program, which is recorded, does nothing wrong in any of them.
BODIES = {
    "a read of scratch": ("v += tl.load(scratch + at)", ""),
    "a write of scratch": ("tl.store(scratch + at, v)", ""),
    "one write, a few programs": ("tl.store(scratch + at, v, mask=late)", ""),
    "a read of a later row, then a write": (
        "v += tl.load(scratch + at - n, mask=late)\n    tl.store(scratch + at, v, mask=late)", USED,
    ),
    "a write, then a read of another row": (
        "tl.store(scratch + at, v, mask=late)\n    v += tl.load(scratch + at - n, mask=row > 3)", USED,
    ),
    "two writes of one row": ("tl.store(scratch + 3 * n + cols, v, mask=late)", USED),
    "two writes of one program": ("tl.store(scratch + at, v, mask=late)\n    tl.store(scratch + at, v + 1, mask=late)", "another thread"),
    "halves of what was written": (
        "tl.store(scratch + at, v, mask=late)\n"
        "    tl.store((scratch + at - n).to(tl.pointer_type(tl.int16)), cols.to(tl.int16), mask=late)",
        USED,
    ),
    "a write to what the first program wrote": ("tl.store(scratch + tl.where(row == 5, 0, row) * n + cols, v)", USED),
    "a write to what the first program read": (
        "v += tl.load(scratch + at, mask=row == 0)\n    tl.store(scratch + (5 - row) * n + cols, v, mask=late)", USED,
    ),
    "a read of what the first program wrote": (
        "tl.store(scratch + at, v, mask=row == 0)\n    v += tl.load(scratch + at - 5 * n, mask=row == 5)", USED,
    ),
    "a write to halves that the first program wrote": (
        "tl.store((scratch + n + cols).to(tl.pointer_type(tl.int16)), cols.to(tl.int16) + 7, mask=(row == 0) & (cols >= 0))\n"
        "    tl.store(scratch + tl.where(row == 5, 1, row) * n + cols, v, mask=late)",
        USED,
    ),
    "a row past the end": ("v += tl.load(scratch + at + n)", "(5, 0, 0) reads 8 elements past the end of `scratch`"),
    "half of an element": (
        "tl.store((scratch.to(tl.pointer_type(tl.int8)) + at * 4 + tl.where(late, 2, 0)).to(tl.pointer_type(tl.float32)), v, mask=row < 5)",
        "at an address that is no multiple of 4",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def others() -> Iterator[Zygote]:
    """A fork server for the jobs of this folder."""
    with Zygote(interpret=True, extra_path=(str(JOBS),)) as zygote:
        yield zygote


def plan_of(*steps: str) -> LaunchPlan:
    x, scratch, out = (dense(number, (ROWS, WIDTH), "float32") for number in range(3))
    made: dict[str, Step] = {
        "fill": Fill(scratch, 0.5),
        "first": launch("first", (ROWS, 1, 1), {"BLOCK": WIDTH}, x=x, scratch=scratch, n=WIDTH),
        "kernel": launch(
            "kernel", (ROWS, 1, 1), {"BLOCK": WIDTH}, x=x, scratch=scratch, out=out, n=WIDTH
        ),
    }
    return LaunchPlan(
        buffers_of(x, scratch, out, inputs=1), (x,), tuple(made[step] for step in steps), (out,)
    )


def both(
    interpreter: Zygote,
    others: Zygote,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    plan: LaunchPlan,
) -> tuple[list[object], list[object]]:
    """What the runs of a plan give, with batches and with the Python of every program run."""
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(5))
    ways = [
        Execution(plan, (x,)),
        Execution(plan, (x,), backwards=True, relaxed=True),
        Execution(plan, (x,), reverse=True),
    ]
    found = [run(interpreter, text, one) for one in ways]
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:without_tapes")
    wanted = [run(others, text, one) for one in ways]
    return told(found), told(wanted)


def told(answers: list[list[Executed | Rejection]]) -> list[object]:
    """Outputs as numbers, rejections as they are."""
    return [
        [part.tolist() for part in one.outputs] if isinstance(one, Executed) else one
        for (one,) in answers
    ]


@pytest.mark.parametrize("name", BODIES)
def test_programs_at_once_do_what_they_do_in_turn(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same outputs, or the same words, whatever programs do to a buffer that they share."""
    body, words = BODIES[name]
    found, wanted = both(
        interpreter, others, monkeypatch, KERNELS.format(body=body), plan_of("fill", "kernel")
    )
    assert found == wanted
    assert words in str(found) and ("Rejection" in str(found)) is bool(words)


def test_a_batch_sees_that_nothing_was_written(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that only later programs read, and that nothing has filled."""
    text = KERNELS.format(body="v += tl.load(scratch + at, mask=late)")
    found, wanted = both(interpreter, others, monkeypatch, text, plan_of("kernel"))
    assert found == wanted and "of `scratch` that nothing has written" in str(found)


def test_the_worker_loads_no_torch(others: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch takes longer to load than programs take to run: fills, copies that convert, and kernels
    do without.
    """
    monkeypatch.setattr(interpret, "ENTRY", "recorded_job:modules")
    plan = plan_of("fill", "first", "kernel")
    copied = Copy(dense(1, (ROWS, WIDTH), "float32"), dense(0, (ROWS, WIDTH), "bfloat16"))
    x = torch.randn(ROWS, WIDTH)
    text = KERNELS.format(body="v += tl.load(scratch + at)")
    (answer,) = run(others, text, Execution(replace(plan, steps=(*plan.steps, copied)), (x,)))
    assert "torch: False" in str(answer)


def test_a_launch_reads_what_a_batch_has_written(
    interpreter: Zygote, others: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What programs of one launch stored at once is written for the next."""
    text = KERNELS.format(body="v += tl.load(scratch + at)")
    found, wanted = both(interpreter, others, monkeypatch, text, plan_of("first", "kernel"))
    assert found == wanted and "Rejection" not in str(found)
