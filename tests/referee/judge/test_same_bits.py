"""Two runs give the same bits, but for the sign of zeros and NaNs."""

from __future__ import annotations

import pytest
import torch

from referee.case_runs import same_bits

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_sign_of_a_zero_is_left_open(dtype: torch.dtype) -> None:
    """The interpreter's minimum of -0 and +0 is one of them by chance; all other bits count."""
    one = torch.tensor([0.0, -0.0, 1.0, float("nan")], dtype=dtype)
    other = torch.tensor([-0.0, 0.0, 1.0, float("nan")], dtype=dtype)
    assert same_bits([one], [other])
    step = 1.0 + torch.finfo(dtype).eps
    assert not same_bits([one], [torch.tensor([0.0, 0.0, step, float("nan")], dtype=dtype)])
    assert not same_bits([one], [torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=dtype)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_sign_of_a_nan_is_left_open(dtype: torch.dtype) -> None:
    """The interpreter's sum of two NaNs is one of them by chance; where NaNs are counts."""
    one = torch.tensor([float("nan"), 1.0], dtype=dtype)
    assert same_bits([one], [torch.tensor([-float("nan"), 1.0], dtype=dtype)])
    assert not same_bits([one], [torch.tensor([1.0, float("nan")], dtype=dtype)])
    assert not same_bits([one], [torch.tensor([float("inf"), 1.0], dtype=dtype)])


def test_integers_and_8_bit_floats_are_compared_as_they_are() -> None:
    whole, small = torch.tensor([1, -1]), torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn)
    assert same_bits([whole, small], [whole.clone(), small.clone()])
    assert not same_bits([whole, small], [whole + 1, small])
    assert not same_bits([whole, small], [whole, torch.zeros(2).to(torch.float8_e4m3fn)])
