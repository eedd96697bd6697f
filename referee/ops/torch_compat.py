"""Two gaps of PyTorch: dispatch modes that load its compiler, and eight-bit floats without arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def computable(tensor: Tensor) -> Tensor:
    """The tensor, converted to float32 if its floats have eight bits."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; NaN is not equal to NaN."""
    return torch.equal(computable(one), computable(other))


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not import torch's compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If dynamo is skipped, torch imports its compiler (two seconds) at the first operation.
        return False
