"""Runs a PyTorch function in float64, even if it asks for a narrower float.

Every conversion to or creation of a float tensor of at most 32 bits becomes float64. Captured
constants are widened where they meet a float64 tensor, except as the target of an in-place
operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from referee.ops.torch_compat import Mode

_NARROW = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2}
)


class _Widen(Mode):  # type: ignore[no-untyped-call]
    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        wider = {
            key: torch.float64 if key == "dtype" and value in _NARROW else value
            for key, value in kwargs.items()
        }
        met = any(
            isinstance(leaf, Tensor) and leaf.dtype == torch.float64
            for leaf in tree_leaves((args, wider))
        )
        if met and not func._schema.is_mutable:
            args, wider = tree_map(_met, (args, wider))
        return func(*args, **wider)


def _met(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.dtype in _NARROW else leaf


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on float64 copies of its floating inputs; integer inputs stay as they are."""

    def oracle(*inputs: Tensor) -> Any:
        with _Widen():  # type: ignore[no-untyped-call]
            return function(*(_widened(tensor) for tensor in inputs))

    return oracle
