"""Draws a cell's inputs from a secret seed.

Every operand has its own generator, seeded by a hash of seed, cell name, position and operand name.
The same seed gives the same bits on one device and torch version. Values are drawn in fp32, scaled,
clamped to float16's range for a float16 operand, and cast. Huge tensors are drawn in their own
dtype.

The recipes of data operands are in `recipes.py`. Parameters have their own distribution: w is 1 +
normal/2; b and bias are normal. cos and sin come from independent random angles, so the halves of a
row differ. A scalar scale lies in [1/2, 3/2], as the formula demands a positive one; a row scale is
normal. q is all of int8, and tgt any class, including the last and the first.

In rare and rare_none cells, parameters are those of models with exceptions (`nearly_usual.py`). A
recipe with "|" names one recipe for each operand, for user references.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from referee.ops.nearly_usual import NEARLY_USUAL
from referee.ops.operand_recipes import (
    OPERAND_RECIPES,
    PARAMETRIC_RECIPES,
    TIE,
    around_one,
    labels,
    tied,
)
from referee.ops.recipes import LEAST, MIXTURE, RECIPES, Draw, integers, normal, uniform
from referee.ops.spec import Cell, TensorSpec

HALF_MAX = 65504.0
MET = "met:"
"""Prefix of the recipe of normal values; a tenth of them equal the numbers after it."""
HUGE_ELEMENTS = 1 << 26


def generator_for(seed: int, cell: str, position: int, name: str, device: str) -> Generator:
    """The generator of one operand: 63 bits of SHA-256 over its names."""
    digest = hashlib.sha256(f"{seed}\0{cell}\0{position}\0{name}".encode()).digest()
    generator = Generator(device=device)
    generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return generator


def _weight(shape: tuple[int, int], g: Generator) -> Tensor:
    return 1.0 + 0.5 * normal(shape, g).clamp_(-6.0, 6.0)


def _cosine(shape: tuple[int, int], g: Generator) -> Tensor:
    return torch.cos(2.0 * torch.pi * uniform(shape, g))


def _sine(shape: tuple[int, int], g: Generator) -> Tensor:
    return torch.sin(2.0 * torch.pi * uniform(shape, g))


def _row_scales(cell: Cell, shape: tuple[int, int], g: Generator) -> Tensor:
    """Scales of rows. The last of many is zero, as for a quantised row of zeros."""
    out = normal(shape, g)
    if cell.values == "mixed" and shape[0] > len(MIXTURE):
        out[-1] = 0.0
    return out


PARAMETERS: dict[str, Draw] = {
    "w": _weight,
    "b": normal,
    "bias": normal,
    "cos": _cosine,
    "sin": _sine,
}
# Two one-hot operands would multiply to zero, or hide each other's row.
_COMPANIONS = frozenset({"up", "residual"})


def _raw(spec: TensorSpec, cell: Cell, position: int, g: Generator) -> Tensor:
    rows = 1
    for size in spec.shape[:-1]:
        rows *= size
    shape = (rows, spec.shape[-1] if spec.shape else 1)
    if "|" in cell.values:
        recipe, at, tie = cell.values.split("|")[position].partition(TIE)
        kind = recipe.partition(":")[0]
        drawn = (
            PARAMETRIC_RECIPES[kind](recipe, shape, g)
            if kind in PARAMETRIC_RECIPES
            else OPERAND_RECIPES[recipe](shape, g)
        )
        return tied(drawn, at + tie)
    if cell.values.startswith(MET):
        if spec.dtype.startswith(("float", "bfloat")) and spec.name not in {*PARAMETERS, "scale"}:
            recipe = f"equal:normal:1.0:{cell.values.removeprefix(MET)}"
            return PARAMETRIC_RECIPES["equal"](recipe, shape, g)
        return _raw(spec, replace(cell, values="normal"), position, g)
    if spec.dtype == "int8":
        return integers(-128, 128, shape, g)
    if spec.dtype == "int64":
        return labels(cell.inputs[0].shape[-1], shape, g)
    usual = NEARLY_USUAL.get(cell.values, {}).get(spec.name)
    if usual and spec.shape != (1,):
        return usual(shape, cell.inputs[0].shape[-1], g)
    if spec.name == "scale":
        return around_one(shape, g) if spec.shape == (1,) else _row_scales(cell, shape, g)
    if (cell.values == "one_hot" and spec.name in _COMPANIONS) or (
        cell.values == "closed" and spec.name != "gate"
    ):
        return normal(shape, g)
    return PARAMETERS.get(spec.name, RECIPES[cell.values])(shape, g)


def place(spec: TensorSpec, values: Tensor) -> Tensor:
    """`values` with the strides and storage offset of `spec`.

    Gaps contain NaN, the smallest integer, or True.
    """
    dtype: torch.dtype = getattr(torch, spec.dtype)
    shaped = values.to(dtype).reshape(spec.shape)
    if spec.offset == 0 and shaped.stride() == spec.strides:
        return shaped
    extent = (
        spec.offset
        + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))
        + 1
    )
    filler = (
        float("nan")
        if dtype.is_floating_point
        else True
        if dtype == torch.bool
        else torch.iinfo(dtype).min
    )
    base = torch.full((max(extent, spec.offset, 1),), filler, dtype=dtype, device=values.device)
    return base.as_strided(spec.shape, spec.strides, spec.offset).copy_(shaped)


def draw(cell: Cell, seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """The inputs of `cell` on `device`. One seed, device and torch version give the same bits."""
    tensors = []
    for position, spec in enumerate(cell.inputs):
        generator = generator_for(seed, cell.name, position, spec.name, device)
        huge = (
            math.prod(spec.shape) > HUGE_ELEMENTS
            and cell.values == "normal"
            and cell.scales[position] == 1.0
        )
        if huge and spec.name not in PARAMETERS and _is_plain(spec):
            tensors.append(_huge(spec, generator))
        else:
            tensors.append(
                place(spec, _scaled(spec, cell, position, _raw(spec, cell, position, generator)))
            )
    return tuple(tensors)


def _scaled(spec: TensorSpec, cell: Cell, position: int, raw: Tensor) -> Tensor:
    if raw.is_floating_point() and cell.scales[position] != 1.0:
        raw.mul_(cell.scales[position])
    if spec.dtype == "float16" and cell.values != "nonfinite":
        raw.clamp_(-HALF_MAX, HALF_MAX)
    if spec.dtype == "bfloat16" and cell.values in LEAST:
        raw.clamp_(min=torch.finfo(torch.bfloat16).min)
    return raw


def _is_plain(spec: TensorSpec) -> bool:
    return spec.offset == 0 and torch.empty(spec.shape, device="meta").stride() == spec.strides


def _huge(spec: TensorSpec, g: Generator) -> Tensor:
    """Draw in the operand's own dtype, because fp32 would need three times the memory."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype == torch.int8:
        return torch.randint(-128, 128, spec.shape, generator=g, device=g.device, dtype=dtype)
    return torch.randn(spec.shape, generator=g, device=g.device, dtype=dtype)
