"""What stays on its side when inputs move, which outputs are joined of parts, and which numbers
inputs are compared with.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from referee.answers.joined import MOST_PARTS, with_parts
from referee.answers.moves import moved_beside_steps
from referee.ops.promote import in_float64
from referee.ops.thresholds import Threshold, other_way, thresholds_of

GIVEN = torch.tensor([64.0, 65.0, 66.0, 75.0])


def _marked(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[x >= 65.0] = 2.0
    return out


def _in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x *= 1.0
    return x >= 65.0


@pytest.mark.parametrize(
    ("reference", "stays"),
    [
        (lambda x: x >= 65.0, True),
        (lambda x: torch.tensor(65.0) <= x.clone().half().reshape(2, 2).t(), True),
        (lambda x: torch.where(-x.abs() <= -65.0, 1.0, 0.0), True),
        (lambda x: torch.cat([part.float() for part in x.split(2)]).to(torch.int32), True),
        (torch.floor, True),
        (_marked, True),
        (lambda x: x / 5.0 >= 13.0, False),
        (lambda x: x - 65.0 >= 0.0, False),
        (lambda x: torch.round(x, decimals=-1), False),
        (_in_place, False),
    ],
    ids="input moved negated converted floor indexed quotient difference decimals in_place".split(),
)
def test_only_inputs_compared_directly_stay_when_inputs_move(
    reference: Callable[[Tensor], Tensor], stays: bool
) -> None:
    oracle = in_float64(reference)
    moved = GIVEN.double() * (1.0 - 1e-4)
    assert torch.equal(moved_beside_steps(oracle, [GIVEN], [moved]), oracle(GIVEN)) == stays
    assert torch.equal(moved_beside_steps(oracle, [GIVEN], [GIVEN.double()]), oracle(GIVEN))


def test_results_next_to_a_comparison_use_the_moved_inputs() -> None:
    moved = GIVEN.double() * (1.0 - 1e-4)
    result = moved_beside_steps(
        in_float64(lambda x: torch.where(x >= 65.0, x, 0.0)), [GIVEN], [moved]
    )
    assert torch.equal(result, torch.where(GIVEN >= 65.0, moved, 0.0))


@pytest.mark.parametrize(
    ("reference", "widths"),
    [
        (lambda x: torch.stack([x.sum(-1), x.amax(-1)], -1), [1, 1]),
        (lambda x: torch.cat((x, x[:, :1]), 1).detach().clone(), [4, 1]),
        (lambda x: torch.cat((x, x), 0), [4]),
        (lambda x: torch.cat((x, x), -1) * 2.0, [8]),
        (lambda x: torch.stack([x[:, 0]] * (MOST_PARTS + 1), -1), [MOST_PARTS + 1]),
        (lambda x: torch.cat((x, x), -1).mul_(2.0), [8]),
        (lambda x: x.sum(), [1]),
    ],
    ids="stack cat rows product many in_place none".split(),
)
def test_an_output_is_of_the_parts_it_is_joined_of_last(
    reference: Callable[[Tensor], Tensor], widths: list[int]
) -> None:
    (output,), found = with_parts(reference, [torch.randn(3, 4)])
    assert found == [widths] and sum(widths) == (output.shape[-1] if output.dim() else 1)


@pytest.mark.parametrize(
    ("reference", "numbers"),
    [
        (lambda x: torch.where(x >= 65.0, 2.0, torch.where(x < 18.0, 1.0, 0.0)), [65.0, 18.0]),
        (lambda x: torch.where(x > 0, x, 0.1 * x), []),
        (lambda x: (x * 2.0 > 3.0).float(), []),
        (lambda x: x.sort().values, []),
    ],
    ids="steps continuous computed sort".split(),
)
def test_thresholds_are_where_answers_jump(
    reference: Callable[[Tensor], Tensor], numbers: list[float]
) -> None:
    assert sorted(threshold.number for threshold in thresholds_of(reference, [GIVEN])) == sorted(
        numbers
    )


def test_equality_counts_for_the_other_side() -> None:
    (answer,) = other_way(
        lambda x: torch.where(x.clone() >= 65.0, 1.0, 0.0), [GIVEN], Threshold(0, 65.0)
    )
    assert answer.tolist() == [0.0, 0.0, 1.0, 1.0]
