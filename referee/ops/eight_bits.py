"""Eight-bit floats. PyTorch stores and converts them but does not compute with them."""

from __future__ import annotations

import torch
from torch import Tensor


def computable(tensor: Tensor) -> Tensor:
    """The tensor, converted to float32 if its floats have eight bits."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; NaN is not equal to NaN."""
    return torch.equal(computable(one), computable(other))
