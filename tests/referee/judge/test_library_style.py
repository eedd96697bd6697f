"""Kernels in the manner of public libraries, judged as a user's, and their wrong twins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from referee import Referee, TaskName
from referee.verdict import Verdict
from referee.versions import facts, triton_version
from tests.referee.library_style.twins import TWINS, Twin

FOLDER = Path(__file__).parents[1] / "library_style"
REFERENCES = str(FOLDER / "references.py")
NAMES = sorted(file.name.removesuffix(".py.txt") for file in FOLDER.glob("*.py.txt"))

NOT_JUDGED = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, (x * tl.sigmoid(x)).to(y_ptr.dtype.element_ty), mask=at < n)

def run(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
"""


def source_of(name: str) -> str:
    return (FOLDER / f"{name}.py.txt").read_text(encoding="utf-8")


def header_of(source: str) -> dict[str, str]:
    return dict(re.findall(r"^# (\w+): (.*)$", source.partition("\nimport")[0], re.MULTILINE))


def judged(referee: Referee, source: str, *, strict: bool = False) -> Verdict:
    header = header_of(source)
    version = triton_version()
    if version and header.get("lacks") in facts(version).lacks:
        pytest.skip(f"triton {version} has no tl.{header['lacks']}")
    function = header.get("reference")
    task = (
        TaskName(function, REFERENCES, function, (header["input"],)) if function else header["op"]
    )
    return referee.judge(source, task, level="correct", strict=strict)


def twin_source(twin: Twin) -> str:
    source = source_of(twin.of)
    assert source.count(twin.old) == 1, twin.mistake
    return source.replace(twin.old, twin.new)


def test_there_are_sixty_kernels_of_different_structure() -> None:
    structures = {header_of(source_of(name))["structure"] for name in NAMES}
    assert len(NAMES) >= 60 and len(structures) == len(NAMES)
    assert {twin.of for twin in TWINS} <= set(NAMES)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_of_a_library_is_accepted(referee: Referee, name: str) -> None:
    verdict = judged(referee, source_of(name))
    assert verdict.verdict == "correct", verdict.reason


def test_a_transposed_answer_is_named_and_no_draft_s(referee: Referee) -> None:
    source = source_of("transposed_output")
    words = "does not hold for callers that need `out` contiguous"
    assert judged(referee, source).reason.startswith(words)
    strict = judged(referee, source, strict=True)
    assert (strict.verdict, strict.guard) == ("rejected", "output_contract"), strict.reason


@pytest.mark.parametrize(
    ("old", "new", "guard"),
    [
        ("tl.program_id(0)", "tl.program_id(0) + 0 * tl.extra.cuda.smid()", "not_judged"),
        ("num_warps=4", "num_warps=4, num_ctas=2", "launch_feature"),
    ],
)
def test_a_part_of_triton_that_is_not_judged_is_no_fault(
    referee: Referee, old: str, new: str, guard: str
) -> None:
    """A user reads "error", which says nothing about the kernel; a draft is rejected."""
    source = NOT_JUDGED.replace(old, new)
    outcomes = [
        (found.verdict, found.guard)
        for found in (
            referee.judge(source, "silu", level="correct", strict=strict)
            for strict in (False, True)
        )
    ]
    assert outcomes == [("error", guard), ("rejected", guard)]


@pytest.mark.sweep
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.of)
def test_its_wrong_twin_is_rejected(referee: Referee, twin: Twin) -> None:
    verdict = judged(referee, twin_source(twin))
    assert verdict.verdict == "rejected" and verdict.guard in twin.guards, verdict.reason
