"""The memory layout of operands and outputs of a user's reference, taken from its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor

from referee.ops.cells import contiguous_strides
from referee.ops.spec import Dtype, TensorSpec, are_apart
from referee.reference.unusable import UnusableReference

ALIGNMENT = 16
"""Alignment in bytes for which Triton specialises a pointer."""


def _dtype(tensor: Tensor, what: str) -> Dtype:
    name = str(tensor.dtype).removeprefix("torch.")
    for known in get_args(Dtype):
        if known == name:
            dtype: Dtype = known
            return dtype
    raise UnusableReference(f"{what} has dtype {name}, which the referee does not judge")


def spec_of(name: str, tensor: Tensor) -> TensorSpec:
    """An operand with its example's layout, or contiguous if elements share memory.

    Raises UnusableReference, also for a float64 operand, for which there is no wider oracle.
    """
    if tensor.dtype == torch.float64:
        reason = "which the referee does not judge as an input"
        raise UnusableReference(f"{name} has dtype float64, {reason}")
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        on_meta = tensor.device.type == "meta"
        kind = "has no values (it is on the meta device)" if on_meta else "is sparse"
        advice = "a kernel takes pointers to values: make the examples of dense tensors"
        raise UnusableReference(f"{name} {kind}, and {advice}")
    shape = tuple(tensor.shape)
    apart = lies_apart(tensor)
    kept = apart and not tensor.is_contiguous()
    strides = tuple(tensor.stride()) if kept else contiguous_strides(shape)
    # Only the alignment of the start matters.
    offset = int(tensor.storage_offset()) % (ALIGNMENT // tensor.element_size()) if apart else 0
    return TensorSpec(name, shape, _dtype(tensor, name), strides, offset)


def output_spec(name: str, out: Tensor, inputs: Sequence[Tensor]) -> TensorSpec:
    """An output. Contiguous strides are always allowed.

    So are the reference's own strides, or else an input's, which `torch.empty_like` keeps.
    """
    if out.layout != torch.strided:
        advice = "a kernel writes dense tensors: let the reference return them, by to_dense()"
        raise UnusableReference(f"{name} is sparse, and {advice}")
    shape = tuple(out.shape)
    dense = (
        like
        for like in (out, *inputs)
        if like.shape == out.shape and _is_dense(like) and not like.is_contiguous()
    )
    strides = next((tuple(like.stride()) for like in dense), contiguous_strides(shape))
    return TensorSpec(name, shape, _dtype(out, name), strides)


def _is_dense(tensor: Tensor) -> bool:
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return lies_apart(tensor) and reach < tensor.numel()


def lies_apart(tensor: Tensor) -> bool:
    """Whether no two elements of the tensor share memory."""
    return are_apart(tensor.shape, tensor.stride())
