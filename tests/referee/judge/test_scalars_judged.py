"""Kernels that get numbers: those that follow them pass, and a kernel may leave them out, which is
said.
"""

from __future__ import annotations

from pathlib import Path

from referee import Referee, TaskName
from referee.verdict import Verdict
from tests.referee.reference.test_scalars import written

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, w, out, columns, alpha, beta, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    found = alpha * tl.load(x + at, mask=mask) * tl.load(w + tl.arange(0, BLOCK), mask=mask) + beta
    tl.store(out + at, found, mask=mask)

def run({parameters}):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, w, out, x.shape[1], {alpha}, {beta}, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""


def judge(
    referee: Referee, folder: Path, parameters: str, alpha: str, beta: str, *inputs: str
) -> Verdict:
    name = TaskName(
        "scaled", str(written(folder)), "scaled", inputs or ("x=f32[B,N] w=f32[N] alpha=2.0",)
    )
    return referee.judge(
        KERNEL.format(parameters=parameters, alpha=alpha, beta=beta), name, level="correct"
    )


def test_a_kernel_that_follows_the_numbers_passes(referee: Referee, tmp_path: Path) -> None:
    verdict = judge(referee, tmp_path, "x, alpha, w, beta", "alpha", "beta")
    assert verdict.passed, verdict.reason
    assert {check.name: check.detail for check in verdict.checks}["values"].count(
        "alpha 2, 3, 1, 6"
    ) == 1


def test_a_kernel_that_writes_a_number_down_is_rejected(referee: Referee, tmp_path: Path) -> None:
    verdict = judge(referee, tmp_path, "x, alpha, w, beta", "2.0", "beta")
    assert (verdict.verdict, verdict.guard) == (
        "rejected",
        "wrong_answer",
    ) and "-scalars" in verdict.reason


def test_a_kernel_with_a_table_of_numbers_is_rejected(referee: Referee, tmp_path: Path) -> None:
    """Right at every number that is listed, and wrong for its users."""
    verdict = judge(
        referee,
        tmp_path,
        "x, alpha, w, beta",
        "alpha if alpha in (1.0, 2.0, 3.0, 6.0) else 2.0",
        "beta",
    )
    assert (verdict.verdict, verdict.guard) == ("rejected", "wrong_answer"), verdict.reason


def test_a_kernel_may_leave_numbers_out(referee: Referee, tmp_path: Path) -> None:
    """It is then judged at their usual values only, and the verdict says so."""
    verdict = judge(referee, tmp_path, "x, w", "2.0", "0.5")
    assert verdict.passed and "judged at alpha=2, beta=0.5 only" in verdict.reason
    some = judge(referee, tmp_path, "x, alpha, w", "alpha", "0.5")
    assert some.passed and "judged at beta=0.5 only" in some.reason


def test_numbers_of_several_examples_cannot_be_left_out(referee: Referee, tmp_path: Path) -> None:
    verdict = judge(
        referee,
        tmp_path,
        "x, w",
        "2.0",
        "0.5",
        "x=f32[B,N] w=f32[N] alpha=2.0",
        "x=f32[B,N] alpha=4.0",
    )
    assert verdict.verdict == "rejected" and "run(x, alpha, w, beta)" in verdict.reason, (
        verdict.reason
    )
