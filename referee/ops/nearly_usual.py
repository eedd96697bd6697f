"""Parameters as models have them almost everywhere, with a few exceptions.

Weights are one, biases zero, rotation tables follow the position, and scales are equal. A kernel
that samples them, or assumes their usual form, is wrong at the exceptions. Weights are zero where
the operation adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from referee.ops.recipes import integers, normal, uniform

MOST_OTHERS = 3
"""Maximum number of exceptions in a vector."""
MOST_MORE = 2.0
OTHER_ANGLES, OTHER_SCALES = 1.0 / 16.0, 1.0 / 6.0
"""The shares of exceptions in a table, and among the scales of rows."""
BASE = 10_000.0
"""Base of the rotary frequencies: Su et al., RoFormer (2021), section 3.2.2."""


def _vector(shape: tuple[int, int], width: int, g: Generator, *, usual: float) -> Tensor:
    del width
    out = torch.full(shape, usual, dtype=torch.float32, device=g.device)
    count = min(int(integers(1, MOST_OTHERS + 1, (1,), g)), shape[1])
    if count:
        places = torch.randperm(shape[1], generator=g, device=g.device)[:count]
        out[:, places] += 1.0 + normal((shape[0], count), g).abs().clamp(max=MOST_MORE)
    return out


def _table(
    shape: tuple[int, int], width: int, g: Generator, *, of: Callable[[Tensor], Tensor]
) -> Tensor:
    """Cosines or sines for heads of `width` columns.

    The first half of the rows has successive positions; in the second half, two rows share a
    position.
    """
    half = max(width // 2, 1)
    rows = torch.arange(shape[0], device=g.device)
    first = (shape[0] + 1) // 2
    positions = torch.where(rows < first, rows, rows // 2).float()
    columns = torch.arange(shape[1], device=g.device) % half
    frequencies = torch.exp(columns.float() * (-math.log(BASE) / half))
    others = of(2.0 * torch.pi * uniform(shape, g))
    return torch.where(
        uniform(shape, g) < OTHER_ANGLES, others, of(positions.unsqueeze(1) * frequencies)
    )


def _scales(shape: tuple[int, int], width: int, g: Generator) -> Tensor:
    del width
    return torch.where(uniform(shape, g) < OTHER_SCALES, normal(shape, g), normal((1, 1), g))


Draw = Callable[[tuple[int, int], int, Generator], Tensor]

_NONE = partial(_vector, usual=0.0)
_SAME: dict[str, Draw] = {
    "b": _NONE, "bias": _NONE, "cos": partial(_table, of=torch.cos), "sin": partial(_table, of=torch.sin), "scale": _scales
}  # fmt: skip

NEARLY_USUAL: dict[str, dict[str, Draw]] = {
    "rare": {**_SAME, "w": partial(_vector, usual=1.0)},
    "rare_none": {**_SAME, "w": _NONE},
}
"""Draws by recipe and parameter. Each takes shape, columns of the data and generator."""
