"""What a user's task accepts, found with few evaluations of a reference that may be slow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee import Referee
from referee.answers.compare import compare
from referee.answers.user_task import accepted_wrong_answers
from referee.ops.mutation_check import check_task
from referee.ops.task import Task
from referee.problem import Problem, TaskName
from referee.reference.outcomes import unmet_outcomes
from referee.reference.unusable import UnusableReference
from referee.verdict import Verdict
from tests.referee.own_reference import load_user

REFERENCE = """
import torch


def fn(x, w):
    return {body}


def get_inputs():
    return [torch.randn(16, 24), torch.randn(24)]
"""
MOST_EVALUATIONS = 14
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, w, out, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + cols
    mask = cols < n
    tl.store(out + at, tl.load(x + at, mask=mask) * tl.load(w + cols, mask=mask), mask=mask)


def run(x, w):
    out = torch.empty_like(x)
    scaled[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""


def task(tmp_path: Path, body: str) -> Task:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE.format(body=body))
    return load_user(file, "fn", "cpu")


def test_an_honest_reference_accepts_no_wrong_answer(tmp_path: Path) -> None:
    assert accepted_wrong_answers(task(tmp_path, "torch.softmax(x * w, -1)"), 3) == ()


def test_a_reference_of_zeros_accepts_zeros(tmp_path: Path) -> None:
    assert "zeros" in accepted_wrong_answers(task(tmp_path, "x * 0 + w * 0"), 3)


def test_each_of_several_outputs_is_tried_on_its_own(tmp_path: Path) -> None:
    assert (
        accepted_wrong_answers(
            task(tmp_path, "x * w, torch.softmax(x, -1), x.sum(-1), (x * 3).to(torch.int32)"), 3
        )
        == ()
    )
    assert accepted_wrong_answers(task(tmp_path, "x * w, x * 0, (x * x).sum()"), 3) == (
        "zeros in output 1",
    )


@pytest.mark.parametrize(
    "body",
    [
        "torch.softmax(x * w, -1)",
        "x * 0 + w * 0",
        "(x > w, x * w, (x * 3).to(torch.int32))",
        "x.sign() * w",
    ],
)
def test_trying_nothing_twice_and_saying_little_finds_the_same(tmp_path: Path, body: str) -> None:
    given = task(tmp_path, body)
    thorough, quick = (
        check_task(given, compare, seed=5),
        check_task(given, partial(compare, briefly=True), seed=5, once=True),
    )
    assert (quick.accepted, quick.never_wrong) == (thorough.accepted, thorough.never_wrong)
    first, only = (
        [(one.wrong_answer, one.cell) for one in proof.findings if one.caught]
        for proof in (thorough, quick)
    )
    assert only == [one for number, one in enumerate(first) if one[0] not in dict(first[:number])]
    assert len(quick.findings) < len(thorough.findings)


def test_a_task_too_slow_for_the_interpreter_is_refused_first(
    referee: Referee, tmp_path: Path
) -> None:
    file = tmp_path / "reference.py"
    text = REFERENCE.format(body="x.view(600, 512) * w")
    file.write_text(
        text.replace("randn(16, 24), torch.randn(24)", "randn(600, 512), torch.randn(512)")
    )
    told: list[str] = []
    task = TaskName("reference:fn", str(file), "fn")
    found = referee.judge(KERNEL, task, level="correct", tell=told.append)
    assert found.verdict == "error"
    assert "307,200 elements" in found.reason and "get_inputs" in found.reason
    assert not any("tells right answers" in words for words in told)
    # Compiling takes no time that depends on it.
    assert referee.judge(KERNEL, task, level="compile").verdict == "unsure"


def test_a_large_example_is_judged_at_smaller_sizes(referee: Referee, tmp_path: Path) -> None:
    """Without a GPU: fewer rows, where the reference takes them, which the verdict says."""
    file = tmp_path / "reference.py"
    file.write_text(
        REFERENCE.format(body="x * w").replace(
            "randn(16, 24), torch.randn(24)", "randn(600, 512), torch.randn(512)"
        )
    )
    found = referee.judge(KERNEL, TaskName("reference:fn", str(file), "fn"), level="correct")
    assert found.verdict == "correct", found.reason
    assert "without a GPU judged at smaller sizes (1 to 17 for 600)" in found.reason


def test_an_output_that_accepts_any_value_is_told(tmp_path: Path) -> None:
    given = task(tmp_path, "torch.softmax(x * w, -1), x + w")

    def coarse(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        """So far from the oracle that the budget of the second output is wide."""
        exact = inputs[0] + inputs[1]
        return torch.softmax(
            inputs[0] * inputs[1], -1
        ), exact if exact.dtype == torch.float64 else exact * 1.0 + 1e5

    found = accepted_wrong_answers(replace(given, eager=coarse), 3)
    assert found and all(name.endswith(" in output 1") for name in found)


ONE_NUMBER = """
import torch


def fn(x, s):
    return {body}


def get_inputs():
    return [torch.randn(16, 24), {number}]
"""


@pytest.mark.parametrize(
    ("body", "number", "accepted"),
    [
        ("x * s", "torch.tensor([0.5])", ()),
        ("(x.exp() * s).sum()", "torch.tensor([2.0])", ()),
        ("x * s", "torch.tensor([127], dtype=torch.int8)", ()),
        ("x * s", "torch.tensor([True])", ()),
        ("torch.softmax(x, -1) + 0 * s", "torch.tensor([0.5])", ("any s",)),
    ],
)
def test_a_single_number_is_told_from_another_number(
    tmp_path: Path, body: str, number: str, accepted: tuple[str, ...]
) -> None:
    file = tmp_path / "reference.py"
    file.write_text(ONE_NUMBER.format(body=body, number=number))
    found = accepted_wrong_answers(load_user(file, "fn", "cpu"), 3)
    assert set(found) >= set(accepted) and bool(found) is bool(accepted), found


def test_a_slow_reference_is_evaluated_once_for_equal_inputs(tmp_path: Path) -> None:
    given = task(tmp_path, "torch.softmax(x * w, -1)")
    calls = 0

    def counting(*inputs: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return torch.softmax(inputs[0] * inputs[1], -1)

    counted = replace(
        given,
        eager=counting,
        oracle=lambda *inputs: counting(*(tensor.double() for tensor in inputs)),
    )
    assert accepted_wrong_answers(counted, 3) == ()
    assert 0 < calls <= MOST_EVALUATIONS * len(given.required)


def test_columns_that_count_for_nothing_beside_others_are_told(tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    body = "out = x.new_zeros(8, 2)\n    out[:, 0] = torch.sin(x.sum(-1))\n    out[:, 1] = 1e9 * x.sum(-1)\n    return out"
    file.write_text(
        f"import torch\ndef fn(x):\n    {body}\ndef get_inputs():\n    return [torch.randn(8, 32)]\n"
    )
    assert set(accepted_wrong_answers(load_user(file, "fn", "cpu"), 3)) >= {
        "the first column missing",
        "every column missing but the largest",
    }


def test_a_side_that_equality_is_never_drawn_for_is_told(tmp_path: Path) -> None:
    told = accepted_wrong_answers(task(tmp_path, "torch.where(x >= 0.123, w, -w)"), 3)
    assert "x = 0.123 on the other side" in told
    for judged in ("torch.where(x >= 0.125, w, -w)", "(x >= -0.5) & (x < 0.5) & (w < 2)"):
        assert accepted_wrong_answers(task(tmp_path, judged), 3) == (), judged
    for harmless in (
        "torch.where(x > 0.123, x - 0.123, 0.0) * w",
        "torch.where(x >= 0, w, -w)",
        "torch.where(x * w >= 0.123, w, -w)",
    ):
        assert not any(
            "other side" in name for name in accepted_wrong_answers(task(tmp_path, harmless), 3)
        ), harmless


def test_a_reference_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableReference, match="every kernel would be right"):
        task(tmp_path, "(x * w)[:, 24:]")


def test_an_output_without_elements_hides_no_other_one(tmp_path: Path) -> None:
    assert accepted_wrong_answers(task(tmp_path, "(x * w, x[:, 24:])"), 3) == ()
    found = accepted_wrong_answers(task(tmp_path, "((x > 1e6) * w, x[:, 24:])"), 3)
    assert "zeros in output 0" in found and not any(name.endswith("output 1") for name in found)


MANY = """
import torch


def fn(x, w):
    {change}
    return x * w


EXAMPLES = [(torch.randn(3, columns), torch.randn(columns)) for columns in {columns}]
"""


def judged_with(
    referee: Referee, tmp_path: Path, kernel: str, columns: list[int], change: str = "pass"
) -> Verdict:
    file = tmp_path / "reference.py"
    file.write_text(MANY.format(columns=columns, change=change))
    return referee.judge(kernel, TaskName("", str(file), "fn"), level="correct")


def test_every_small_example_is_judged(referee: Referee, tmp_path: Path) -> None:
    wrong = KERNEL.replace("mask = cols < n", "mask = (cols < n) & (cols < 40)")
    assert judged_with(referee, tmp_path, KERNEL, [10, 20, 30, 35, 50]).verdict == "correct"
    rejected = judged_with(referee, tmp_path, wrong, [10, 20, 30, 35, 50])
    assert rejected.verdict == "rejected" and "example4-" in rejected.reason


def test_examples_that_are_not_judged_are_told(referee: Referee, tmp_path: Path) -> None:
    verdict = judged_with(referee, tmp_path, KERNEL, [10, 20, 90_000])
    assert (
        verdict.verdict == "correct"
        and "1 of the reference's examples were not judged" in verdict.reason
    )


def test_what_a_reference_changes_is_told_in_the_reason(referee: Referee, tmp_path: Path) -> None:
    verdict = judged_with(
        referee, tmp_path, KERNEL, [10], change="before = x.clone(); x.add_(1); x = before"
    )
    assert verdict.verdict == "correct" and "changes in place are not judged: x" in verdict.reason


@pytest.mark.parametrize(
    "body, told",
    [
        ("torch.nan_to_num(x) * w", "`nan_to_num` changes a value"),
        ("(x * w).clamp(-1e12, 1e12)", "`clamp` lowers a value"),
        ("torch.where(x + w > 12345.0, w, x)", "`gt` is true"),
        ("x.masked_fill(torch.isinf(x), 7.0) * w", "`isinf` is true"),
    ],
)
def test_an_outcome_that_no_case_has_is_told(tmp_path: Path, body: str, told: str) -> None:
    found = accepted_wrong_answers(task(tmp_path, body), 3)
    assert any(told in name and body in name for name in found), found


@pytest.mark.parametrize(
    "body", ["torch.where(x > 0, x, w)", "x.clamp(-0.5, 0.5) * w", "(x / w.abs().clamp_min(1e-3))"]
)
def test_an_outcome_of_a_case_is_not_told(tmp_path: Path, body: str) -> None:
    found = accepted_wrong_answers(task(tmp_path, body), 3)
    assert not any("any answer where" in name for name in found), found


def test_a_decision_in_a_shipped_function_is_of_no_line() -> None:
    assert unmet_outcomes(Problem(TaskName.of("quantize_int8_rows")).task("cpu"), 1) == ()
