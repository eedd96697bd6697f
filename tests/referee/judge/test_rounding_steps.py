"""An integer that rounds a calculated number has two right answers near a tie, and one at an exact
tie.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.answers.error_sizes import evaluate
from referee.answers.moves import EPS32
from referee.answers.rounding_steps import other_sides
from referee.ops.task import Task
from referee.problem import Problem, TaskName
from tests.referee.own_reference import Answer, task

Step = Callable[[Tensor], Tensor]

ROWS = "torch.round(x / s).clamp(-127, 127).to(torch.int8)"
BLOCKS = (
    "(b := x.reshape(-1, 32), torch.round(b / (b.abs().amax(-1, keepdim=True) / 127.0))"
    ".clamp(-127, 127).to(torch.int8).reshape(x.shape))[1]"
)
SHIFTED = "(torch.round(x / s) + 3.0).clamp(0, 200).to(torch.uint8)"


def _divided(x: Tensor, s: Tensor) -> Tensor:
    """A quotient that is off by two units of the last place, up or down; a division by a power of
    two has no error.
    """
    units = torch.arange(x.numel()).reshape(x.shape) % 5 - 2
    return x / s * (1.0 + units * 2.0**-23 * (torch.frexp(s).mantissa != 0.5))


def _rows(step: Step) -> Answer:
    return lambda x, s: step(_divided(x, s)).clamp(-127, 127).to(torch.int8)


def _blocks(step: Step) -> Answer:
    def answer(x: Tensor) -> Tensor:
        b = x.reshape(-1, 32)
        scale = b.abs().amax(-1, keepdim=True) / 127.0
        return step(_divided(b, scale)).clamp(-127, 127).to(torch.int8).reshape(x.shape)

    return answer


def _shifted(step: Step) -> Answer:
    return lambda x, s: (step(_divided(x, s)) + 3.0).clamp(0, 200).to(torch.uint8)


def _away(u: Tensor) -> Tensor:
    return torch.trunc(u + torch.copysign(torch.tensor(0.5), u))


def _often_off(u: Tensor) -> Tensor:
    # One column of 64 is off by one.
    return torch.round(u) + (torch.arange(u.shape[-1]) % 64 == 5)


def _passes(judged: Task, answer: Answer, *inputs: Tensor) -> bool:
    cell = judged.required[0]
    return compare(judged, cell, inputs, evaluate(answer, inputs)).status == "pass"


def _inputs(kind: str, scale: Tensor, seed: int) -> Tensor:
    """Random numbers, every second one with a quotient near a tie. Or ties: multiples of 1/64 with a
    largest one that makes the scale 1/32.
    """
    x = torch.randn((64, 1024), generator=torch.Generator().manual_seed(seed))
    if kind == "near":
        x[:, ::2] = (torch.floor(x / scale) + 0.5)[:, ::2] * scale
        x[:, ::32] = 127.0 * scale
        return x
    ties = (x * 64.0).round().clamp(-253, 253) / 64.0
    ties[:, ::32] = 254 / 64
    return ties


@pytest.mark.parametrize(
    ("arguments", "body", "given", "answer"),
    [
        ("x, s", ROWS, "torch.randn(64, 1024), torch.rand(64, 1) + 0.01", _rows),
        ("x", BLOCKS, "torch.randn(64, 1024)", _blocks),
        ("x, s", SHIFTED, "torch.randn(64, 1024), torch.rand(64, 1) + 0.01", _shifted),
    ],
    ids=["rows", "blocks", "shifted"],
)
def test_a_division_may_be_off_and_a_step_may_not(
    tmp_path: Path, arguments: str, body: str, given: str, answer: Callable[[Step], Answer]
) -> None:
    judged = task(tmp_path, arguments, body, given)
    scale, takes_scale, changed = torch.linspace(0.03, 0.05, 64)[:, None], "s" in arguments, False
    for seed in range(3):
        x = _inputs("near", scale, seed)
        inputs = [x, scale] if takes_scale else [x]
        right, found = (evaluate(one, inputs)[0] for one in (judged.eager, answer(torch.round)))
        changed |= not torch.equal(right, found)
        assert _passes(judged, answer(torch.round), *inputs)
    assert changed, "the emulated division changes no integer"
    for wrong in (torch.trunc, torch.floor, _often_off):
        assert not _passes(judged, answer(wrong), *inputs)
    x = _inputs("ties", scale, 0)
    inputs = [x, torch.full((64, 1), 1 / 32)] if takes_scale else [x]
    assert _passes(judged, answer(torch.round), *inputs)
    for wrong in (_away, lambda u: torch.floor(u + 0.5)):
        assert not _passes(judged, answer(wrong), *inputs)


def test_sides_differ_only_near_a_tie_of_a_calculated_number() -> None:
    x, s = torch.tensor([[1.05, 1.2, 0.25, 1.0]]).double(), torch.tensor(0.7).double()
    up, down = other_sides(lambda x, s: torch.round(x / s).to(torch.int8), [x, s], EPS32)
    assert up[0].tolist() == [[2, 2, 0, 1]] and down[0].tolist() == [[1, 2, 0, 1]]
    both = other_sides(lambda x: torch.round(x * 4.0 - 0.5).to(torch.int8), [x], EPS32)
    assert all(one[0].tolist() == [[4, 4, 0, 4]] for one in both)


def test_steps_in_place_and_by_assignment_count() -> None:
    def function(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.zeros(x.shape, dtype=torch.int32)
        found[:] = x * s
        return (x / s).round_().to(torch.int32), found

    x, s = torch.tensor([1.05, 2.1]).double(), torch.tensor(0.7).double()
    (up, _), (down, _) = other_sides(function, [x, s], EPS32)
    assert up.tolist() == [2, 3] and down.tolist() == [1, 3]
    steps = other_sides(function, [torch.tensor([10.0, 2.0]).double(), 1 / s], EPS32)
    assert [found.tolist() for _, found in steps] == [[14, 2], [14, 2]]


def test_a_function_without_steps_has_no_other_sides() -> None:
    assert other_sides(lambda x: x.argmax(-1), [torch.ones(2, 3).double()], EPS32) == []


@pytest.mark.parametrize("name", ["quantize_int8_rows", "quantize_int8_blocks"])
def test_a_case_of_ties_shows_halves_away_from_zero(name: str) -> None:
    judged = Problem(TaskName.of(name)).task("cpu")
    cells = [cell for cell in judged.required if cell.name.endswith("-ties")]
    assert cells
    for cell in cells:
        inputs = judged.inputs(cell, 5)
        right, scale = evaluate(judged.eager, inputs)
        numbers = inputs[0].float() / scale.repeat_interleave(
            inputs[0].shape[1] // scale.shape[1], 1
        )
        away = _away(numbers).clamp(-127, 127).to(torch.int8)
        assert compare(judged, cell, inputs, (right, scale)).status == "pass"
        assert compare(judged, cell, inputs, (away, scale)).status == "fail"
