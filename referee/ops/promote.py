"""Run a PyTorch function in float64, also where it asks for a narrower float itself.

Every conversion or creation of a float16, bfloat16 or float32 tensor inside the function is widened to float64. Constants
the function captured stay as narrow as they are; PyTorch promotes them where it mixes dtypes elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})


class _Widen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        wider = {key: torch.float64 if key == "dtype" and value in _NARROW else value for key, value in (kwargs or {}).items()}
        return func(*args, **wider)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on float64 copies of its floating inputs; integer inputs stay as they are."""

    def oracle(*inputs: Tensor) -> Any:
        with _Widen():  # type: ignore[no-untyped-call]
            return function(*(_widened(tensor) for tensor in inputs))

    return oracle
