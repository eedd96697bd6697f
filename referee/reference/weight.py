"""Computes the memory of the user's inputs before they are made, on tensors without values.

Limits: inputs that need values, such as an index from a comparison, are made without this check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves

from referee.reference.inputs import SHORT_DTYPES
from referee.reference.unusable import TooLarge

SHARE = 0.5
"""Share of the free memory; the kernel's answers, float64 and copies need as much again."""
GIB = 1 << 30


class _Weightless(TorchFunctionMode):
    """Makes all tensors within the block without values."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in _device_constructors():
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
        if function in (torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.pin_memory):
            return args[0]
        return function(*args, **kwargs)


def refuse_too_heavy(make: Callable[[], Any], of: str) -> None:
    """Raise TooLarge if the tensors of `make` would need more than the free memory."""
    try:
        with _Weightless():
            tensors = [leaf for leaf in tree_leaves(make()) if isinstance(leaf, Tensor)]
    except (Exception, SystemExit):
        # A fault of the function shows at its real call.
        return
    needed, free = sum(tensor.numel() * tensor.element_size() for tensor in tensors), free_bytes()
    if free is not None and needed > SHARE * free:
        shapes = ", ".join(
            f"{_short(tensor)}[{','.join(map(str, tensor.shape))}]" for tensor in tensors[:3]
        )
        raise TooLarge(
            f"{of} makes tensors of {needed / GIB:.1f} GiB ({shapes}); {free / GIB:.1f} GiB of memory are free; "
            "give the shapes with --input, or make them smaller"
        )


def _short(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return SHORT_DTYPES.get(name, name)


def free_bytes() -> int | None:
    """Free memory in bytes; None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return int(kibibytes) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        return None
