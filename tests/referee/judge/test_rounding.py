"""References whose intermediate results are rounded at random: right gradients pass, low precision fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from referee.answers.moves import Moves
from referee.answers.random_rounding import (
    randomly_rounded,
    rounding_errors,
    rounding_noise,
    steps_of,
)
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


def rounded(function: Callable[[Tensor], Tensor], x: Tensor, seed: int = 0) -> Tensor:
    found = randomly_rounded(function, [x], steps_of(function, [x]), seed)
    assert found is not None
    return found[0]


def test_a_rounding_is_at_most_half_an_ulp_of_fp32() -> None:
    x = torch.linspace(0.5, 2.0, 1000, dtype=torch.float64)
    error = rounded(lambda x: x * 3.0, x) / (x * 3.0) - 1.0
    assert {f"{value:.3e}" for value in error.tolist()} == {"5.960e-08", "-5.960e-08"}


def branching(x: Tensor) -> Tensor:
    return x * (2.0 if float((x * 3.0).sum()) > 0 else 1e9)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x * 2.0 >= 1.0, x * 3.0, -1e9),
        lambda x: torch.round(x * 2.0) + x * 3.0,
        lambda x: (x * 2.0).round_() + x * 3.0,
        lambda x: x.gather(-1, (x * 2.0).argmax(-1, keepdim=True)) * 3.0,
        lambda x: (x * 2.0).to(torch.int64) + x * 3.0,
        lambda x: torch.where(x * 2.0 >= (x * 2.0).amax(-1, keepdim=True), 1.0, 0.0) + x * 3.0,
        branching,
    ],
)
def test_a_step_keeps_its_result(function: Callable[[Tensor], Tensor]) -> None:
    """Halves lie on the edge of each step here, where any rounding would change it."""
    x = torch.full((4, 8), 0.5, dtype=torch.float64)
    for seed in range(4):
        error = (rounded(function, x, seed) - function(x)).abs()
        assert 0.0 < float(error.max()) < 1e-6


def test_a_function_with_other_steps_has_no_sample() -> None:
    x = torch.rand(4, 8, dtype=torch.float64)
    assert randomly_rounded(lambda x: torch.floor(x), [x], (), 0) is None
    assert rounding_errors(lambda x: torch.floor(x) * 2.0, [x], [x], ()) is None


@pytest.mark.parametrize(
    ("bias", "error"),
    [
        (lambda at: at - 9.0, 0.0),
        (lambda at: (at - 9.0) % 3.0, 0.0),
        (lambda at: at / 3.0, 1e-7),
        (lambda at: at.mul_(3.0) * 0.5, 1e-7),
    ],
    ids="difference remainder third product".split(),
)
def test_whole_numbers_are_not_rounded(bias: Callable[[Tensor], Tensor], error: float) -> None:
    def positions(x: Tensor) -> Tensor:
        return bias(torch.arange(x.shape[-1]).to(x.dtype))

    x = torch.rand(4, 33, dtype=torch.float64)
    errors = (rounded(positions, x) - positions(x)).abs() / positions(x).abs().clamp(min=1.0)
    assert 0.5 * error <= float(errors.max()) <= error


def test_the_errors_of_an_element_do_not_cancel() -> None:
    """In random samples, the two equal errors of an element cancel in half of the cases."""
    x = torch.full((1000,), 0.3, dtype=torch.float64)
    steps = steps_of(lambda x: x * 3.0 * 3.0, [x])
    found = rounding_errors(lambda x: x * 3.0 * 3.0, [x], [x * 3.0 * 3.0], steps)
    assert found is not None
    size = float((x * 9.0)[0]) * 2.0**-24
    assert torch.allclose(found[0], torch.full_like(x, 2.0**0.5 * size), rtol=1e-6)


def test_every_element_has_the_errors_of_all_operations() -> None:
    """Where each element is a row, a few random samples are too small for some of many."""
    x = torch.full((1000,), 0.3, dtype=torch.float64)
    exact = (x * 9.0,)
    moves = Moves((), centred=False, paired=True)
    found = rounding_noise(lambda x: x * 3.0 * 3.0, [x], exact, moves, 4, alone=True)
    least = torch.stack([errors[0] for errors in found]).amax(0).min()
    assert float(least) > 1.4 * float(exact[0][0]) * 2.0**-24
