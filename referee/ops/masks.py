"""Recipes of masked logits: stand-ins for minus infinity, infinities and NaN.

- nonfinite: six rows of seven have a NaN, +Inf or -Inf, or -Inf in three quarters or throughout.
- masked: two rows of three have the dtype's least number, in three quarters or throughout.
- masks: of nine rows, one is normal. Two have each of `FILLERS` or the dtype's least number, one of
  them in three quarters and one throughout.
- masks_in_range: the same for logits that are multiplied first. The least number would overflow,
  and whole rows of large fillers would leave an infinite remainder under FMA contraction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from referee.ops.draws import integers, normal

FILLERS = (-1.0e4, -1.0e9, -1.0e10)
"""Values that libraries write into masked logits."""
LEAST_OF_ALL = torch.finfo(torch.float32).min
MASK = -9.0e3
"""No other logit of these recipes is as low; in bfloat16 the first filler is -9984."""


def _filled(
    shape: tuple[int, int], g: Generator, *, fillers: tuple[float, ...], whole: int
) -> Tensor:
    out = normal(shape, g)
    count, most = 2 * len(fillers) + 1, shape[1] * 3 // 4
    for number, filler in enumerate(fillers):
        start = 0 if number % 2 == 0 else shape[1] - most
        out[2 * number + 1 :: count, start : start + most] = filler
        if number < whole:
            out[2 * number + 2 :: count] = filler
    return out


def _masked(shape: tuple[int, int], g: Generator) -> Tensor:
    out = normal(shape, g)
    out[1::3, : shape[1] * 3 // 4] = out[2::3] = LEAST_OF_ALL
    return out


def _nonfinite(shape: tuple[int, int], g: Generator) -> Tensor:
    out = normal(shape, g)
    for row, value in enumerate((float("nan"), float("inf"), float("-inf")), start=1):
        if shape[1]:
            rows = out[row::7]
            rows.scatter_(1, integers(0, shape[1], (rows.shape[0], 1), g), value)
    most = shape[1] * 3 // 4
    out[4::7, :most] = float("-inf")
    out[5::7, shape[1] - most :] = float("-inf")
    out[6::7] = float("-inf")
    return out


MASKS: dict[str, Callable[[tuple[int, int], Generator], Tensor]] = {
    "nonfinite": _nonfinite,
    "masked": _masked,
    "masks": partial(_filled, fillers=(*FILLERS, LEAST_OF_ALL), whole=4),
    "masks_in_range": partial(_filled, fillers=FILLERS, whole=1),
}
LEAST = frozenset({"masked", "masks"})
"""Recipes with float32's least number, which stands for that of the dtype."""
FINITE = frozenset({"masked", "masks", "masks_in_range"})
"""Recipes whose masks are finite numbers."""


def is_a_mask(tensor: Tensor, values: str) -> Tensor:
    """Where an operand of a cell of these values has a mask, in rows that also have other logits.

    In `masked`, every least number is a mask, even in a row of nothing else. Otherwise a row of
    masks alone is a row of logits, which round as such.
    """
    if not tensor.is_floating_point():
        return torch.zeros_like(tensor, dtype=torch.bool)
    if values == "masked":
        return tensor == torch.finfo(tensor.dtype).min
    low = tensor < MASK
    return low & ~low.all(-1, keepdim=True) if tensor.dim() > 1 else torch.zeros_like(low)
