"""Kernels that change an argument in place, as their reference does."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee import Referee, TaskName
from referee.verdict import Verdict

REFERENCES = """
import torch

def doubled(x):
    return x.mul_(2.0)

def silent(x):
    x.mul_(2.0)

def apart(x):
    return x * 2.0
"""
KERNEL = """
@triton.jit
def _double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)


def run(x):
    out = {out}
    _double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return {returned}
"""
IN_PLACE = "changes x in place, as the reference does; judged and timed on a copy"


def judged(
    referee: Referee, folder: Path, reference: str, out: str, returned: str, *, strict: bool = False
) -> Verdict:
    file = folder / "mine.py"
    file.write_text(REFERENCES)
    source = KERNEL.format(out=out, returned=returned)
    task = TaskName(reference, str(file), reference, ("x=f32[N]",))
    return referee.judge(source, task, level="correct", strict=strict)


@pytest.mark.parametrize(
    ("reference", "returned"), [("doubled", "x"), ("silent", "x"), ("silent", "None")]
)
def test_a_change_that_the_reference_makes_is_right(
    referee: Referee, tmp_path: Path, reference: str, returned: str
) -> None:
    found = judged(referee, tmp_path, reference, "x", returned)
    assert found.verdict == "correct" and found.reason.startswith(IN_PLACE), found.reason
    assert found.holds is not None and found.holds.changed == ("x",)


def test_new_tensors_are_right_too(referee: Referee, tmp_path: Path) -> None:
    found = judged(referee, tmp_path, "doubled", "torch.empty_like(x)", "out")
    assert found.verdict == "correct" and found.holds is None, found.reason


@pytest.mark.parametrize(
    ("reference", "out", "returned", "strict", "guard"),
    [
        ("apart", "x", "x", False, "output_alias"),
        ("doubled", "x", "x", True, "output_alias"),
        ("doubled", "x", "None", False, "output_contract"),
        ("doubled", "x", "x.clone()", False, "input_mutated"),
    ],
)
def test_other_changes_of_an_input_are_rejected(
    referee: Referee,
    tmp_path: Path,
    reference: str,
    out: str,
    returned: str,
    strict: bool,
    guard: str,
) -> None:
    found = judged(referee, tmp_path, reference, out, returned, strict=strict)
    assert (found.verdict, found.guard) == ("rejected", guard), found.reason
