"""Mixing two tensors: elements of both, evenly, another mixture for every seed. On this machine's GPU if it has one."""

from __future__ import annotations

import pytest
import torch

from referee.mixing import mixed
from tests.referee.gpu.interpreted import in_interpreter

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_the_kernel_in_triton_s_interpreter() -> None:
    assert in_interpreter("mixing_interpreted.py") == (0, "")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 7), (64, 1000)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_every_element_comes_from_one_of_them(device: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    first, second = torch.zeros(shape, dtype=dtype, device=device), torch.ones(shape, dtype=dtype, device=device)
    found = mixed(first, second, 2**62 + 1)
    assert (found.shape, found.dtype, found.device) == (first.shape, dtype, first.device)
    assert ((found == 0) | (found == 1)).all() and torch.equal(found, mixed(first, second, 2**62 + 1))
    if found.numel() > 1000:
        other = mixed(first, second, 2**62 + 2)
        for share in (found.double().mean(), (found == other).double().mean()):
            assert abs(float(share) - 0.5) < 0.02


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_operands_with_gaps_are_mixed_too(device: str) -> None:
    base = torch.arange(200.0, device=device).reshape(10, 20)
    found = mixed(base[:, 3:9], -base[:, 3:9], 5)
    assert found.is_contiguous() and torch.equal(found.abs(), base[:, 3:9]) and 10 < int((found < 0).sum()) < 50
