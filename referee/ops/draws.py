"""Random tensors from a generator, on its device. Normal and uniform numbers are fp32."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def normal(shape: tuple[int, int], g: Generator) -> Tensor:
    """Normal numbers with mean zero and deviation one."""
    return torch.randn(shape, generator=g, device=g.device, dtype=torch.float32)


def uniform(shape: tuple[int, ...], g: Generator) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return torch.rand(shape, generator=g, device=g.device, dtype=torch.float32)


def integers(low: int, high: int, shape: tuple[int, ...], g: Generator) -> Tensor:
    """Integers in [low, high), int64."""
    return torch.randint(low, high, shape, generator=g, device=g.device)
