"""Torch leaves the order of equal values open, so a kernel may number them in any order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.answers.compare import compare
from tests.referee.own_reference import task

Answer = Callable[[Tensor], Tensor]


def first(x: Tensor) -> Tensor:
    return x.sort(dim=-1, descending=True, stable=True).indices[:, :2].contiguous()


def last(x: Tensor) -> Tensor:
    return (x.shape[-1] - 1 - first(x.flip(-1))).contiguous()


def second_and_third(x: Tensor) -> Tensor:
    return x.sort(dim=-1, descending=True, stable=True).indices[:, 1:3].contiguous()


@pytest.mark.parametrize(
    ("body", "answer", "passes"),
    [
        ("torch.topk(x, 2).indices", first, True),
        ("torch.topk(x, 2).indices", last, True),
        ("torch.topk(x, 2).indices", second_and_third, False),
        ("torch.topk(torch.softmax(x.float(), -1), 2).indices", last, True),
        ("x.argmax(-1)", lambda x: last(x)[:, 0].contiguous(), False),
    ],
    ids=["first", "last", "wrong", "after softmax", "argmax names the first"],
)
def test_equal_values_have_any_order(
    tmp_path: Path, body: str, answer: Answer, passes: bool
) -> None:
    judged = task(tmp_path, "x", body, "torch.randn(64, 8).bfloat16()")
    x = torch.randn((64, 8), generator=torch.Generator().manual_seed(3)).bfloat16()
    x[::2, 5] = x[::2].amax(-1)
    assert not torch.equal(first(x), last(x))
    found = compare(judged, judged.required[0], [x], [answer(x)])
    assert (found.status == "pass") == passes, found
