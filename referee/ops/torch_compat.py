"""Two gaps of PyTorch: dispatch modes that load its compiler, and eight-bit floats without arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def computable(tensor: Tensor) -> Tensor:
    """The tensor, converted to float32 if its floats have eight bits."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; NaN is not equal to NaN."""
    return torch.equal(computable(one), computable(other))


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """The results of a function as a tuple, even if there is only one."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not import torch's compiler. `operation` runs each ATen operation."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.operation(function, args, kwargs or {})

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of one operation, by default as without the mode."""
        return function(*args, **kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If dynamo is skipped, torch imports its compiler (two seconds) at the first operation.
        return False
