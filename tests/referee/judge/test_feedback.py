"""What is said of a wrong answer, and of a race: one piece of advice, and one that fits."""

from __future__ import annotations

import torch

from referee.answers.feedback import explain
from referee.answers.tolerance import Expected
from referee.interpreter.interpret import _explained


def said(value: torch.Tensor, output: torch.Tensor) -> str:
    """The explanation where every difference of more than 1e-4 is wrong."""
    error = (output - value).abs().double()
    return explain(Expected(value.double(), torch.full_like(error, 1e-4), output.dtype), output, error, error > 1e-4)


def normed(x: torch.Tensor, *, one_pass: bool) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean if one_pass else (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * torch.linspace(0.5, 2, x.shape[-1]) + torch.linspace(-1, 1, x.shape[-1])


def test_a_variance_of_one_pass_is_told_to_subtract_the_mean_first() -> None:
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


def test_a_race_gets_one_piece_of_advice() -> None:
    rejection = _explained("race", "program 0 stores to `y` and another thread may use it before: add tl.debug_barrier() between")
    assert rejection.reason.endswith(": add tl.debug_barrier() between")
    rejection = _explained("race", "programs 0 and 1 use the same element of `y`; add tl.debug_barrier() before a ticket or lock")
    assert rejection.reason.endswith("add tl.debug_barrier() before a ticket or lock")
    assert _explained("race", "program 0 and 1 store to one element").reason.endswith("or use atomics, a barrier or a second launch")
