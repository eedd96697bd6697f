"""Answers that torch leaves open are asked of no kernel: casts without room, and the order of equal
values.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.ops.implementation_defined import is_implementation_defined
from tests.referee.own_reference import rejecting, task

EQUAL = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
APART = torch.tensor([[1.0, 3.0, 4.0, 0.0], [2.0, -1.0, 7.0, 5.0]])


def stored(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape, dtype=torch.int8)
    out.copy_(x)
    return out


@pytest.mark.parametrize(
    ("reference", "inputs", "open_"),
    [
        (lambda x: (x / 0 * 0).to(torch.int8), APART, True),
        (lambda x: (x * 100).to(torch.int8), APART, True),
        (lambda x: (x * 100).clamp(-128, 127).to(torch.int8), APART, False),
        (lambda x: (-x).to(torch.uint8), APART, True),
        (lambda x: x.int(), APART, False),
        (lambda x: (x > 1).float().to(torch.bool), APART, False),
        (lambda x: stored(x * 100), APART, True),
        (stored, APART, False),
        # What is open somewhere within, and makes no difference, is not.
        (lambda x: (x * 100).to(torch.int8) * 0, APART, False),
        (lambda x: torch.topk(x, 2).indices, EQUAL, True),
        (lambda x: torch.topk(x, 2).indices, APART, False),
        (lambda x: torch.topk(x, 2).values, EQUAL, False),
        (lambda x: torch.topk(x, k=1, dim=0, largest=False).indices, torch.ones(3, 2), True),
        (lambda x: torch.sort(x).indices, EQUAL, True),
        (lambda x: torch.sort(x, descending=True).values, EQUAL, False),
        (lambda x: torch.sort(x, dim=0, descending=True).indices, APART, False),
        (lambda x: torch.sort(x, stable=True).indices, EQUAL, False),
        (lambda x: torch.argsort(x), EQUAL, True),
        (lambda x: x.argmax(-1), EQUAL, False),
        (lambda x: torch.topk(x, 2), EQUAL, True),
        # In another way it would fail.
        (lambda x: torch.arange(1)[torch.topk(x[:1, 1:3], 1).indices * (x[0, 0] > 0)], EQUAL, True),
    ],
)
def test_what_is_left_open(
    reference: Callable[[Tensor], Tensor], inputs: Tensor, open_: bool
) -> None:
    def eager(x: Tensor) -> Tensor | tuple[Tensor, ...]:
        found = reference(x)
        return found if isinstance(found, Tensor) else tuple(found)

    assert is_implementation_defined(eager, [inputs]) == open_


def test_a_quantiser_may_divide_zero_by_zero_as_it_likes(tmp_path: Path) -> None:
    body = "(x / (x.abs().amax(-1, keepdim=True) / 127)).round().to(torch.int8)"
    judged = task(tmp_path, "x", body, "torch.randn(6, 40)")
    labels = {cell.name.partition("-")[2] for cell in judged.required}
    assert "zero" not in labels and {"given", "large", "mixed", "itself"} <= labels

    def other(x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.where(scale == 0, 5.0, (x / scale).round()).to(torch.int8)

    assert not rejecting(judged, other, 1)
    assert rejecting(
        judged, lambda x: (x / (x.abs().amax(-1, keepdim=True) / 126)).round().to(torch.int8), 1
    )


def test_a_router_may_number_equal_values_in_any_order(tmp_path: Path) -> None:
    judged = task(tmp_path, "x", "torch.topk(x.softmax(-1), 2).indices", "torch.randn(8, 16)")

    def last_first(x: Tensor) -> Tensor:
        return (
            x.shape[-1]
            - 1
            - torch.sort(x.softmax(-1).flip(-1), descending=True, stable=True).indices[:, :2]
        )

    assert not rejecting(judged, last_first, 1)
    assert rejecting(judged, lambda x: torch.topk(x.softmax(-1), 2).indices.flip(-1), 1)
