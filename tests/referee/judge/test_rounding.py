"""References whose intermediate results are rounded at random: right gradients pass, low precision fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from referee.answers.moves import randomly_rounded
from referee.ops.shipped import shipped
from referee.ops.task import Task
from referee.reference.asked import Asked
from referee.reference.task import load_task
from tests.referee.own_reference import rejecting


def gradient(dtype: torch.dtype) -> Task:
    """The gradient of softmax, judged in one dtype."""
    ours = shipped()["softmax_backward"]
    inputs = tuple(one for one in ours.inputs if str(dtype).removeprefix("torch.") in one)
    return load_task(Asked(str(ours.file), "softmax_backward", inputs or ours.inputs), "cpu")


def softmax_backward(dout: Tensor, x: Tensor) -> Tensor:
    """In fp32, with another exponential and another order of the sum than PyTorch."""
    exponential = torch.exp2((x.float() - x.float().amax(-1, keepdim=True)) * 1.4426950408889634)
    share = exponential / exponential.sum(-1, keepdim=True)
    total = (share * dout.float()).flip(-1).cumsum(-1)[..., -1:]
    return ((dout.float() - total) * share).to(x.dtype)


def softmax_backward_with_a_half_precision_sum(dout: Tensor, x: Tensor) -> Tensor:
    share = torch.softmax(x.float(), -1)
    total = (share * dout.float()).sum(-1, keepdim=True).half().float()
    return ((dout.float() - total) * share).to(x.dtype)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_gradient_whose_terms_cancel_is_right(seed: int) -> None:
    assert not rejecting(gradient(torch.float32), softmax_backward, seed)


def test_a_half_precision_sum_in_a_gradient_is_wrong() -> None:
    assert rejecting(gradient(torch.float32), softmax_backward_with_a_half_precision_sum, 0)


def test_a_rounding_is_at_most_half_an_ulp_of_fp32() -> None:
    x = torch.linspace(0.5, 2.0, 1000, dtype=torch.float64)
    rounded = randomly_rounded(lambda x: x * 3.0, [x], 0)
    assert rounded is not None
    error = rounded[0] / (x * 3.0) - 1.0
    assert {f"{value:.3e}" for value in error.tolist()} == {"5.960e-08", "-5.960e-08"}


@pytest.mark.parametrize(
    "step",
    [
        lambda x: torch.where(x * 2.0 > 1.0, x, 0.0),
        lambda x: torch.round(x * 127.0),
        lambda x: x.argmax(-1),
        lambda x: (x * 100.0).to(torch.int64),
        lambda x: x * float(x.sum()),
    ],
)
def test_no_sample_is_taken_of_a_reference_with_steps(step: object) -> None:
    assert callable(step)
    assert randomly_rounded(step, [torch.rand(4, 8, dtype=torch.float64)], 0) is None


@pytest.mark.parametrize(
    ("bias", "has_steps"),
    [
        (lambda at, x: at > 20.0, False),
        (lambda at, x: (at - 9.0) % 3.0 == 0.0, False),
        # A third is rounded, and a number of the input was.
        (lambda at, x: at / 3.0 > 7.0, True),
        (lambda at, x: at * x[0, 0] > 7.0, True),
        (lambda at, x: at.add_(x[0]) > 7.0, True),
    ],
    ids="positions remainder third computed written".split(),
)
def test_a_comparison_of_positions_is_no_step(
    bias: Callable[[Tensor, Tensor], Tensor], has_steps: bool
) -> None:
    def masked(x: Tensor) -> Tensor:
        at = torch.arange(x.shape[-1]).to(x.dtype)
        return (x * 2.0).masked_fill(bias(at, x), 0.0)

    found = randomly_rounded(masked, [torch.rand(4, 33, dtype=torch.float64)], 0)
    assert (found is None) == has_steps
