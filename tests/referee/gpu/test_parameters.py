"""Packing kernel parameters, which needs no GPU."""

from __future__ import annotations

import ctypes

import pytest
import torch

from referee.replaying.driver import MEANING, STICKY, CudaError, ParameterError, pack


@pytest.mark.parametrize(
    ("kind", "value", "size", "stored"),
    [
        ("*fp16", 0x7F00_0000_1000, 8, 0x7F00_0000_1000),
        ("*i64", None, 8, 0),
        ("i32", -5, 4, -5),
        ("i64", 1 << 40, 8, 1 << 40),
        ("u64", (1 << 64) - 1, 8, (1 << 64) - 1),
        ("u1", True, 1, 1),
        ("fp32", 0.1, 4, ctypes.c_float(0.1).value),
        ("fp64", 0.1, 8, 0.1),
        ("fp32", 3, 4, 3.0),
    ],
)
def test_values_are_stored_in_their_type(
    kind: str, value: int | float | None, size: int, stored: int | float
) -> None:
    packed = pack(kind, value)
    assert (ctypes.sizeof(packed), packed.value) == (size, stored)


@pytest.mark.parametrize(
    "value", [0.0, 1.0, -0.1, 3.14159, 1e-40, 60000.0, float("inf"), float("nan")]
)
@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_floats_round_as_torch_rounds(kind: str, dtype: torch.dtype, value: float) -> None:
    assert pack(kind, value).value == torch.tensor(value, dtype=dtype).view(torch.uint16).item()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i32", 1 << 31),
        ("i8", 200),
        ("u32", -1),
        ("i32", 1.5),
        ("i32", None),
        ("nvTmaDesc", 0),
        ("fp16", 1e6),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, value: int | float | None) -> None:
    with pytest.raises(ParameterError):
        pack(kind, value)


def test_errors_say_whether_the_context_is_lost() -> None:
    error = CudaError("cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    assert error.sticky
    assert "outside the memory" in str(error)
    assert not CudaError("cuLaunchKernel", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES").sticky
    assert set(MEANING) - {701} <= STICKY
