"""Sizes of errors and values: of single elements, of rows, and in units of the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from referee.ops.torch_compat import computable

Tensors = tuple[Tensor, ...]


def ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The spacing of `dtype` at |value|, float64 in and out.

    At zero it is the smallest subnormal; for inf and NaN it is infinite.
    """
    info = torch.finfo(dtype)
    exponent = torch.frexp(value.abs().clamp(min=info.smallest_normal)).exponent - 1
    spacing = torch.ldexp(torch.full_like(value, info.eps), exponent)
    return torch.where(value.isfinite(), spacing, torch.inf)


def evaluate(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Tensors:
    """The outputs of an oracle or of eager PyTorch, always as a tuple."""
    result = function(*inputs)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def difference(other: Tensor, value: Tensor) -> Tensor:
    # A value that is not finite says nothing about rounding.
    return (other.double() - value).abs().nan_to_num(nan=0.0, posinf=0.0)


def row_max(error: Tensor) -> Tensor:
    if error.dim() < 2 or not error.shape[-1]:
        return error
    return error.amax(-1, keepdim=True)


def row_max_of(error: Tensor, shared: Tensor) -> Tensor:
    """Each element's own error, or the largest error that its row shares if that is more."""
    return torch.maximum(row_max(torch.where(shared, error, 0.0)), error)


def finite_size(tensor: Tensor) -> Tensor:
    return computable(tensor).abs().double().nan_to_num(nan=0.0, posinf=0.0)


def per_row(size: Tensor, value: Tensor) -> Tensor:
    """The largest of `size` in each row of `value`, or overall if their rows do not match."""
    if not value.dim() or not size.dim() or size.shape[0] != value.shape[0]:
        return size.max()
    return size.reshape(size.shape[0], -1).amax(-1).reshape(-1, *([1] * (value.dim() - 1)))
