"""Mixing two tensors: elements of both, evenly, another mixture for every seed. On this machine's
GPU if it has one.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from referee.timing.mixing import Drawn, Mixed
from tests.referee.gpu.interpreted import in_interpreter

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int64,
    torch.bool,
]


def pair(device: str, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.zeros(shape, dtype=dtype, device=device), torch.ones(
        shape, dtype=dtype, device=device
    )


def test_the_kernel_in_triton_s_interpreter() -> None:
    assert in_interpreter("mixing_interpreted.py") == (0, "")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 7), (64, 1000)])
@DEVICES
def test_every_element_comes_from_one_of_them(
    device: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    first, second = pair(device, shape, dtype)
    found = Mixed(first, second, 2**62 + 1).made()
    assert (found.shape, found.dtype, found.device) == (first.shape, dtype, first.device)
    assert ((found == 0) | (found == 1)).all() and torch.equal(
        found, Mixed(first, second, 2**62 + 1).made()
    )
    if found.numel() > 1000:
        other = Mixed(first, second, 2**62 + 2).made()
        for share in (found.double().mean(), (found == other).double().mean()):
            assert abs(float(share) - 0.5) < 0.02


@DEVICES
def test_a_mixture_has_the_bits_of_what_it_is_mixed_of(device: str) -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800123, -0x80000000], dtype=torch.int32, device=device)
    found = Mixed(bits.view(torch.float32), bits.view(torch.float32), 3).made()
    assert torch.equal(found.view(torch.int32), bits)


@pytest.mark.parametrize("values", ["drawn", "mixed"])
@DEVICES
def test_a_target_with_gaps_keeps_what_lies_in_them(device: str, values: str) -> None:
    numbers = torch.arange(1.0, 61.0, device=device).reshape(10, 6)
    given = Mixed(numbers, -numbers, 5) if values == "mixed" else Drawn(numbers)
    base = torch.zeros((10, 20), device=device)
    target = base[:, 3:9]
    given.write(target)
    assert (
        torch.equal(target, given.made())
        and torch.equal(target.abs(), numbers)
        and int((base != 0).sum()) == 60
    )
    assert (10 < int((target < 0).sum()) < 50) == (values == "mixed")
