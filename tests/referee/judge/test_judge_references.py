"""Verdicts by a reference of the user, from a file or made in this process."""

from __future__ import annotations

import re
from pathlib import Path

from referee import Referee, TaskName
from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task

REFERENCE = """
import torch

def scaled(x, y):
    return 2.0 * x + y

def get_inputs():
    return [torch.randn(4, 33), torch.randn(4, 33)]
"""

CANDIDATE = """
@triton.jit
def _kernel(x_ptr, y_ptr, out_ptr, total, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + here, mask=here < total).to(tl.float32)
    y = tl.load(y_ptr + here, mask=here < total).to(tl.float32)
    tl.store(out_ptr + here, FACTOR * x + y, mask=here < total)


def run(x, y):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""


def test_a_reference_of_the_user_s_own(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE)
    task = TaskName("scaled", str(file), "scaled")
    right, wrong = (
        referee.judge(CANDIDATE.replace("FACTOR", factor), task) for factor in ("2.0", "2.01")
    )
    assert right.verdict == "correct" and wrong.guard == "wrong_answer", (right, wrong)
    assert "reference supplied by the user" in next(
        check.detail for check in right.checks if check.name == "vacuity"
    )


def test_a_reference_that_accepts_zeros_is_called_so(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "nothing.py"
    file.write_text(REFERENCE.replace("2.0 * x + y", "0.0 * x"))
    verdict = referee.judge(
        CANDIDATE.replace("FACTOR * x + y", "0.0 * x * y"), TaskName("nothing", str(file), "scaled")
    )
    assert "accepts" in next(
        check.detail
        for check in verdict.checks
        if check.name == "vacuity" and check.status == "fail"
    )
    said = r"; reference supplied by the user: it also accepts [^,;]+, [^,;]+ and \d+ more$"
    assert verdict.verdict == "correct" and re.search(said, verdict.reason), verdict.reason


def test_a_strict_reference_leaves_the_reason_as_it_is(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE)
    assert (
        "accepts"
        not in referee.judge(
            CANDIDATE.replace("FACTOR", "2.0"), TaskName("scaled", str(file), "scaled")
        ).reason
    )


def test_the_wrong_side_of_a_number_is_a_wrong_answer(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "chosen.py"
    number = 0.5 + 2.0**-11
    file.write_text(REFERENCE.replace("2.0 * x + y", f"torch.where(x < {number}, y, -y)"))
    task = TaskName("chosen", str(file), "scaled")
    right, wrong = (
        referee.judge(
            CANDIDATE.replace("FACTOR * x + y", f"tl.where(x {sign} {number}, y, -y)"), task
        )
        for sign in ("<", "<=")
    )
    assert (
        right.verdict == "correct" and wrong.guard == "wrong_answer" and "-equal" in wrong.reason
    ), (right, wrong)


def test_a_task_made_in_this_process(referee: Referee) -> None:
    spec = TensorSpec("x", (3, 50), "float32", (50, 1))
    op = Op(
        name="triple",
        kind="user",
        family="user",
        title="triple",
        formula="3x",
        difficulty="hard",
        origin="user",
        arguments=("x",),
    )
    cell = Cell(
        "triple",
        (spec,),
        (TensorSpec("out", (3, 50), "float32", (50, 1)),),
        "normal",
        (1.0,),
        "required",
    )
    task = Task(op, (cell,), lambda x: 3 * x, lambda x: 3 * x.double())
    source = (
        CANDIDATE.replace("FACTOR * x + y", "3.0 * x")
        .replace("x, y, out", "x, x, out")
        .replace("def run(x, y)", "def run(x)")
    )
    verdict = referee.judge(source, task)
    assert verdict.verdict == "correct" and verdict.op == "triple", verdict
