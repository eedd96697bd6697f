"""What is said of a wrong answer, and of a race: one piece of advice, and one that fits."""

from __future__ import annotations

import pytest
import torch

from referee.answers.error_sizes import ulp
from referee.answers.feedback import explain
from referee.answers.tolerance import Expected
from referee.interpreter.interpret import _explained


def said(value: torch.Tensor, output: torch.Tensor) -> str:
    """The explanation where every difference of more than 1e-4 is wrong."""
    error = (output - value).abs().double()
    return explain(
        Expected(value.double(), torch.full_like(error, 1e-4), output.dtype),
        output,
        error,
        error > 1e-4,
    )


def normed(x: torch.Tensor, *, one_pass: bool) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (
        (x * x).mean(-1, keepdim=True) - mean * mean
        if one_pass
        else (x - mean).square().mean(-1, keepdim=True)
    )
    return (x - mean) * torch.rsqrt(variance + 1e-5) * torch.linspace(
        0.5, 2, x.shape[-1]
    ) + torch.linspace(-1, 1, x.shape[-1])


def test_a_one_pass_variance_is_advised_to_subtract_the_mean() -> None:
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) + 100
    for after in (lambda y: y, torch.relu):
        text = said(after(normed(x, one_pass=False)), after(normed(x, one_pass=True)))
        assert "subtract the mean before squaring" in text and "branch" not in text, text


def test_rows_that_are_a_little_off_are_told_so_too() -> None:
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    for factor in (torch.full((4, 1), 1.002), 1 + torch.arange(1, 5)[:, None] / 1000):
        assert "subtract the mean before squaring" in said(x, x * factor)
    assert "subtract the mean" not in said(x, x * 1.5) + said(x, x * torch.arange(2, 6)[:, None])


def test_one_sign_is_named_only_where_there_are_both() -> None:
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    assert "only elements whose answer is positive" in said(x, torch.where(x > 0, x * (1 + x), x))
    positive = x.abs()
    assert "positive" not in said(positive, torch.where(x > 0, positive * (1 + positive), positive))


def test_large_errors_are_not_called_small() -> None:
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    assert "the errors are small" not in said(x, x + x.flip(0))


def measured(
    value: torch.Tensor, output: torch.Tensor, budget: torch.Tensor, norm: bool | None = None
) -> str:
    """The explanation where `budget` is allowed."""
    error = (output.double() - value).abs()
    assert bool((error > budget).any())
    return explain(Expected(value, budget, output.dtype), output, error, error > budget, norm=norm)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wrong", [[(3, 7)], [(1, 2), (3, 50), (3, 99)]])
def test_a_little_beyond_the_budget_is_rounding_wherever_it_lies(
    dtype: torch.dtype, wrong: list[tuple[int, int]]
) -> None:
    value = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)).double()
    for low in (dtype, torch.float32):
        budget = 1.5 * ulp(value, low)
        output = value.to(low)
        for at in wrong:
            output[at] = (value[at] - 3 * budget[at]).to(low)
        text = measured(value, output, budget)
        assert "of the size of rounding" in text and not any(
            word in text for word in ("grid", "offsets", "branch", "norm")
        ), text
        name = str(low).removeprefix("torch.")
        assert (
            f"is kept in {name}" in text and "`.to(tl.float32)` right after tl.load" in text
        ) == (low == dtype), text
        assert ("E[x^2]" in measured(value, output, budget, norm=True)) == (low != dtype)


def test_cancelling_rounded_products_are_far_beyond_the_budget() -> None:
    a, b, c, d = torch.randn(4, 5, 128, generator=torch.Generator().manual_seed(0)).mul(8).half()
    value = a.double() * b.double() - c.double() * d.double()
    budget = 1.5 * ulp(value, torch.float16)
    text = measured(value, a * b - c * d, budget)
    assert "is kept in float16" in text and "norm" not in text, text
    cut = value.half()
    cut[:, 100:] += 0.25 * value.abs().max().half()
    assert "only columns from 100 on" in measured(value, cut, budget)


def test_a_factor_near_one_is_told_by_its_distance() -> None:
    value = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).double()
    for sign, factor in (("-", 1 - 2e-5), ("+", 1 + 2e-5)):
        for budget in (1e-5, 1e-6):
            text = measured(value, (value * factor).float(), torch.full_like(value, budget))
            assert f"is 1 {sign} 2e-05 times the expected: check a constant factor" in text, text


def test_a_race_gets_one_piece_of_advice() -> None:
    rejection = _explained(
        "race",
        "program 0 stores to `y` and another thread may use it before: add tl.debug_barrier() between",
    )
    assert rejection.reason.endswith(": add tl.debug_barrier() between")
    rejection = _explained(
        "race",
        "programs 0 and 1 use the same element of `y`; add tl.debug_barrier() before a ticket or lock",
    )
    assert rejection.reason.endswith("add tl.debug_barrier() before a ticket or lock")
    assert _explained("race", "program 0 and 1 store to one element").reason.endswith(
        "or use atomics, a barrier or a second launch"
    )
