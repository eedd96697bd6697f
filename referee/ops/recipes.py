"""Recipes for the values of data operands, at unit scale and in fp32.

- normal: mean zero, deviation one. close: the same at 1/256.
- sorted: rows ascend.
- constant: each row is one multiple of 1/4 in [-4, 4].
- one_hot: a single +-8 in each row.
- shifted: a mean of +-256 with unit spread.
- cancellation: values near +-64 that cancel in pairs, with small noise.
- outlier: normal with a single +-384 in each row, often the first or the last element.
- rare: small values of one sign and, in each row, one or a few large ones of the other sign. Every
  fourth row repeats the previous one except for one element. This catches kernels that sample
  values or compare rows.
- usual: normal and rare rows at random.
- mixed: row i uses the i-th of the recipes in MIXTURE. For catalogue operations, normal rows are
  usual ones, and the last of many rows is zero, as padding is.
- closed: gates from -9 to -7.
- edges: each row lies close to one of `EDGES`, where few exponentials add up within float32.

Masked logits have stand-ins for minus infinity, infinities and NaN:

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


def normal(shape: tuple[int, int], g: Generator) -> Tensor:
    """Normal numbers with mean zero and deviation one."""
    return torch.randn(shape, generator=g, device=g.device, dtype=torch.float32)


def uniform(shape: tuple[int, ...], g: Generator) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return torch.rand(shape, generator=g, device=g.device, dtype=torch.float32)


def integers(low: int, high: int, shape: tuple[int, ...], g: Generator) -> Tensor:
    """Integers in [low, high), int64."""
    return torch.randint(low, high, shape, generator=g, device=g.device)


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


Draw = Callable[[tuple[int, int], Generator], Tensor]
MIXTURE = ("shifted", "cancellation", "constant", "one_hot", "sorted", "outlier", "normal")
ONE_IN, ONE_IN_MANY = 10, 1.0 / 256.0
_SHIFT, _BIG, _NOISE, _SPIKE, _OUTLIER, _CLOSE = 256.0, 64.0, 1.0 / 64.0, 8.0, 384.0, 1.0 / 256.0
_LEAST, _SLIGHT = 1.0 / 64.0, 1.0 / 16.0


def _signs(rows: int, g: Generator) -> Tensor:
    """A column of alternating signs with a random start, so that several rows have both signs."""
    parity = torch.arange(rows, device=g.device) + integers(0, 2, (1,), g)
    return (1.0 - 2.0 * (parity % 2).float()).unsqueeze(1)


def _sorted(shape: tuple[int, int], g: Generator) -> Tensor:
    return normal(shape, g).sort(dim=-1).values


def _constant(shape: tuple[int, int], g: Generator) -> Tensor:
    steps = integers(1, 17, (shape[0], 1), g).float() / 4.0 * _signs(shape[0], g)
    return steps.expand(shape).clone()


def _one_hot(shape: tuple[int, int], g: Generator) -> Tensor:
    out = torch.zeros(shape, device=g.device, dtype=torch.float32)
    if shape[1]:
        out.scatter_(1, integers(0, shape[1], (shape[0], 1), g), _SPIKE * _signs(shape[0], g))
    return out


def _shifted(shape: tuple[int, int], g: Generator) -> Tensor:
    return normal(shape, g) + _SHIFT * _signs(shape[0], g)


def _cancellation(shape: tuple[int, int], g: Generator) -> Tensor:
    half = shape[1] // 2
    big = _BIG * normal((shape[0], half), g)
    out = _NOISE * normal(shape, g)
    out[:, :half] += big
    out[:, half : 2 * half] -= big.flip(-1)
    return out


def _outlier(shape: tuple[int, int], g: Generator) -> Tensor:
    out = normal(shape, g)
    if shape[1]:
        columns = integers(0, shape[1], (shape[0], 1), g)
        columns[::2], columns[3::4] = 0, shape[1] - 1
        out.scatter_(1, columns, _OUTLIER * _signs(shape[0], g))
    return out


def _rare(shape: tuple[int, int], g: Generator) -> Tensor:
    signs = _signs(shape[0], g)
    out = -signs * (_LEAST + normal(shape, g).abs() * _SLIGHT)
    large = signs * (1.0 + 2.0 * normal(shape, g).abs())
    exceptions = uniform(shape, g) < ONE_IN_MANY
    if shape[1]:
        # Every other row has a single exception.
        exceptions[::2] = False
        exceptions.scatter_(1, integers(0, shape[1], (shape[0], 1), g), True)
    out = torch.where(exceptions, large, out)
    alike = out[3::4]
    if alike.numel():
        alike.copy_(out[2::4][: alike.shape[0]])
        alike.scatter_(1, integers(0, shape[1], (alike.shape[0], 1), g), large[3::4])
    return out


def _usual(shape: tuple[int, int], g: Generator) -> Tensor:
    return torch.where(uniform((shape[0], 1), g) < 0.5, _rare(shape, g), normal(shape, g))


def mixed(shape: tuple[int, int], g: Generator, *, plain: str = "normal") -> Tensor:
    out = torch.empty(shape, device=g.device, dtype=torch.float32)
    count = len(MIXTURE)
    # A secret rotation, but only with enough rows for every recipe; otherwise the hardest come
    # first.
    turn = int(integers(0, count, (1,), g)) if shape[0] >= count else 0
    for index, recipe in enumerate((*MIXTURE[:-1], plain)):
        rows = out[(index + turn) % count :: count]
        rows.copy_(RECIPES[recipe]((rows.shape[0], shape[1]), g))
    return out


def _mixed_and_padding(shape: tuple[int, int], g: Generator) -> Tensor:
    out = mixed(shape, g, plain="usual")
    if shape[0] > len(MIXTURE):
        out[-1] = 0.0
    return out


def _close(shape: tuple[int, int], g: Generator) -> Tensor:
    return normal(shape, g).mul_(_CLOSE)


def _closed(shape: tuple[int, int], g: Generator) -> Tensor:
    return -7.0 - 2.0 * uniform(shape, g)


EDGES = (88.5, 86.0, 84.0, 82.0, -86.0, -88.5, -96.0, -103.0)
"""Numbers around which a sum of a thousand exponentials leaves float32, or single ones do."""


def _edges(shape: tuple[int, int], g: Generator) -> Tensor:
    levels = torch.tensor(EDGES, device=g.device)[
        torch.arange(shape[0], device=g.device) % len(EDGES)
    ]
    return levels.unsqueeze(1) + normal(shape, g) / 4.0


RECIPES: dict[str, Draw] = {
    "normal": normal,
    "sorted": _sorted,
    "constant": _constant,
    "one_hot": _one_hot,
    "shifted": _shifted,
    "cancellation": _cancellation,
    "outlier": _outlier,
    "rare": _rare,
    "rare_none": _rare,
    "usual": _usual,
    "mixed": _mixed_and_padding,
    "close": _close,
    "closed": _closed,
    "edges": _edges,
    **MASKS,
}
