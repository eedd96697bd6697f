"""What all recipes of values are made of: numbers drawn by a generator, on its device. Normal and uniform ones are fp32."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def normal(shape: tuple[int, int], g: Generator) -> Tensor:
    """Mean zero, deviation one."""
    return torch.randn(shape, generator=g, device=g.device, dtype=torch.float32)


def uniform(shape: tuple[int, ...], g: Generator) -> Tensor:
    """From 0 up to 1, which is not reached."""
    return torch.rand(shape, generator=g, device=g.device, dtype=torch.float32)


def integers(low: int, high: int, shape: tuple[int, ...], g: Generator) -> Tensor:
    """From `low` up to `high`, which is not reached; int64."""
    return torch.randint(low, high, shape, generator=g, device=g.device)
