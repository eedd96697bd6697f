"""Drawing a cell's inputs from a secret seed.

Every operand gets its own generator, seeded by a hash of (seed, cell name, operand position and name). On one device and
torch version the same seed gives the same bits; the CPU and a GPU give different ones. Values are drawn in fp32, scaled,
clamped into float16's range for a float16 operand, and cast; huge ones of normal values in their own dtype.

Recipes for data operands (unit scale): normal; sorted (rows ascending); constant (each row one multiple of 1/4 in [-4, 4]);
one_hot (a single +-8 a row; up and residual are normal there); shifted (a mean of +-256, unit spread); cancellation (values
near +-64 that cancel in pairs, small noise on top); outlier (normal, but for a single +-384 a row, in every other row the first, in
every fourth the last); rare (small values of one sign, and of a row one or a few that are large and of the other sign; every fourth row
is the row before but for one element: whoever looks at some values takes all for small, or rows for the same);
mixed (row i uses the i-th of those recipes; of the catalogue's operations half of the normal rows are rare ones, and the last of many
rows is zero in every data operand, as padding is, and has no scale); close (normal, of a 256th of the size); closed (gates from -9 to
-7; whatever they are for is normal);
nonfinite (in five rows of six a NaN, +Inf or -Inf, or nothing but -Inf in the first or the last three quarters, as masks leave it);
masked (in two rows of three float32's or float16's least number, in the first three quarters or throughout).

Parameters keep their own distribution whatever the recipe: w is 1 + normal/2, b and bias normal, cos and sin tables of
independent random angles (the two halves of a row differ), a scalar scale in [1/2, 3/2] (positive, as the op's formula says:
then x may be shifted before it is scaled), a row scale normal, q all of int8, tgt any class, the last and the first among them.
But in rare cells they are what models have, with exceptions (`nearly_usual.py`), and in those of rare_none too, where weights are zero.
A recipe with "|" names one recipe for each operand in turn (user references).

User references round at steps that nobody knows. So that they meet the middle between two steps, a column's values are odd multiples of one
of 2^-4 to 2^-9 in normal_grid and uniform_grid: odd ones, because none of these is in the middle for a symmetric quantiser that takes its
step from the column's largest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from referee.ops.draws import integers, normal, uniform
from referee.ops.nearly_usual import NEARLY_USUAL
from referee.ops.spec import Cell, TensorSpec

Draw = Callable[[tuple[int, int], Generator], Tensor]

MIXTURE = ("shifted", "cancellation", "constant", "one_hot", "sorted", "outlier", "normal")
HALF_MAX = 65504.0
ONE_IN, ONE_IN_MANY = 10, 1.0 / 256.0
HUGE_ELEMENTS = 1 << 26
_SHIFT, _BIG, _NOISE, _SPIKE, _OUTLIER, _CLOSE = 256.0, 64.0, 1.0 / 64.0, 8.0, 384.0, 1.0 / 256.0
_LEAST, _SLIGHT = 1.0 / 64.0, 1.0 / 16.0


def generator_for(seed: int, cell: str, position: int, name: str, device: str) -> Generator:
    """The generator of one operand: 63 bits of SHA-256 over everything that names it."""
    digest = hashlib.sha256(f"{seed}\0{cell}\0{position}\0{name}".encode()).digest()
    generator = Generator(device=device)
    generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return generator


def _signs(rows: int, g: Generator) -> Tensor:
    """A column of alternating signs with a random start, so that no draw of several rows is one-sided."""
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
    """One element a row that all others are small beside, as channels of language models are."""
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
        # Every other row has a single one.
        exceptions[::2] = False
        exceptions.scatter_(1, integers(0, shape[1], (shape[0], 1), g), True)
    out = torch.where(exceptions, large, out)
    alike = out[3::4]
    if alike.numel():
        alike.copy_(out[2::4][: alike.shape[0]])
        alike.scatter_(1, integers(0, shape[1], (alike.shape[0], 1), g), large[3::4])
    return out


def _usual(shape: tuple[int, int], g: Generator) -> Tensor:
    """Normal rows and rare ones, by chance."""
    return torch.where(uniform((shape[0], 1), g) < 0.5, _rare(shape, g), normal(shape, g))


def _mixed(shape: tuple[int, int], g: Generator, *, plain: str = "normal") -> Tensor:
    out = torch.empty(shape, device=g.device, dtype=torch.float32)
    count = len(MIXTURE)
    # A secret rotation, but only where every structure still gets a row: with fewer rows the hardest come first.
    turn = int(integers(0, count, (1,), g)) if shape[0] >= count else 0
    for index, recipe in enumerate((*MIXTURE[:-1], plain)):
        rows = out[(index + turn) % count :: count]
        rows.copy_(RECIPES[recipe]((rows.shape[0], shape[1]), g))
    return out


def _mixed_and_padding(shape: tuple[int, int], g: Generator) -> Tensor:
    out = _mixed(shape, g, plain="usual")
    if shape[0] > len(MIXTURE):
        out[-1] = 0.0
    return out


def _on_grid(values: Tensor, g: Generator) -> Tensor:
    """Each the odd multiple of its column's step that begins or ends where it lies; never zero, and of the same sign."""
    exponents = integers(3, 9, (1, values.shape[1]), g)
    steps = (torch.ones_like(exponents) << exponents).float()
    return (torch.floor(values * steps) + 0.5) / steps


def _normal_grid(shape: tuple[int, int], g: Generator) -> Tensor:
    return _on_grid(normal(shape, g), g)


def _uniform_grid(shape: tuple[int, int], g: Generator) -> Tensor:
    return _on_grid(uniform(shape, g), g)


def _close(shape: tuple[int, int], g: Generator) -> Tensor:
    return normal(shape, g).mul_(_CLOSE)


def _closed(shape: tuple[int, int], g: Generator) -> Tensor:
    return -7.0 - 2.0 * uniform(shape, g)


def _masked(shape: tuple[int, int], g: Generator) -> Tensor:
    out = normal(shape, g)
    out[1::3, : shape[1] * 3 // 4] = out[2::3] = torch.finfo(torch.float32).min
    return out


def _nonfinite(shape: tuple[int, int], g: Generator) -> Tensor:
    out = normal(shape, g)
    for row, value in enumerate((float("nan"), float("inf"), float("-inf")), start=1):
        if shape[1]:
            rows = out[row::6]
            rows.scatter_(1, integers(0, shape[1], (rows.shape[0], 1), g), value)
    most = shape[1] * 3 // 4
    out[4::6, :most] = float("-inf")
    out[5::6, shape[1] - most :] = float("-inf")
    return out


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
    "nonfinite": _nonfinite,
    "masked": _masked,
}


def _weight(shape: tuple[int, int], g: Generator) -> Tensor:
    return 1.0 + 0.5 * normal(shape, g).clamp_(-6.0, 6.0)


def _cosine(shape: tuple[int, int], g: Generator) -> Tensor:
    return torch.cos(2.0 * torch.pi * uniform(shape, g))


def _sine(shape: tuple[int, int], g: Generator) -> Tensor:
    return torch.sin(2.0 * torch.pi * uniform(shape, g))


def _around_one(shape: tuple[int, int], g: Generator) -> Tensor:
    return 0.5 + uniform(shape, g)


def _row_scales(cell: Cell, shape: tuple[int, int], g: Generator) -> Tensor:
    """Of many rows the last one has none, as a row of zeros is quantised."""
    out = normal(shape, g)
    if cell.values == "mixed" and shape[0] > len(MIXTURE):
        out[-1] = 0.0
    return out


PARAMETERS: dict[str, Draw] = {"w": _weight, "b": normal, "bias": normal, "cos": _cosine, "sin": _sine}

# Two one-hot operands would multiply to nothing at all, or hide each other's row.
_COMPANIONS = frozenset({"up", "residual"})

# Recipes a user cell may name for an operand, besides RECIPES; "range:LOW:HIGH" draws integers in [LOW, HIGH], "choice:A:B:C" any of
# the numbers listed, "rows:WIDTH:A:B" 0 or 1 with one row of so many elements all A and another one all B (or only the first of these).
# "equal:RECIPE:SCALE:A:B" the recipe at that scale, but a tenth of the elements equal to A or B. "index:COUNT:A:B" numbers below COUNT,
# the last one and the first one among them and some of them twice, and some A or B; "distinct:COUNT:WIDTH" numbers below COUNT of which
# none comes twice among WIDTH neighbours. "own" values come from elsewhere.
OPERAND_RECIPES: dict[str, Draw] = {
    **RECIPES,
    "mixed": _mixed,
    "uniform": uniform,
    "around_one": _around_one,
    "own": normal,
    "normal_grid": _normal_grid,
    "uniform_grid": _uniform_grid,
}


def _range(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    low, high = (int(bound) for bound in recipe.split(":")[1:])
    return integers(low, high + 1, shape, g)


def _choice(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    # Listed as text, so that infinities and 64-bit integers come back as they were.
    words = recipe.split(":")[1:]
    whole = all(word.lstrip("-").isdecimal() for word in words)
    numbers = [int(word) if whole else float(word) for word in words]
    listed = torch.tensor(numbers, device=g.device, dtype=torch.int64 if whole else torch.float32)
    return listed[integers(0, len(words), shape, g)]


def _whole_rows(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    width, *values = (int(word) for word in recipe.split(":")[1:])
    out = integers(0, 2, shape, g)
    # Rows of the mask, which are not those of its last dimension where that has one element.
    rows = out.view(-1, width)
    for row, value in zip(torch.randperm(rows.shape[0], generator=g, device=g.device), values, strict=False):
        rows[row] = value
    return out


def _equal(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    usual, scale, *words = recipe.split(":")[1:]
    out = OPERAND_RECIPES[usual](shape, g).mul_(float(scale))
    # One in each piece of so many elements, at a random place. Pieces are shorter where some number would not occur at all.
    piece = max(1, min(ONE_IN, out.numel() // len(words)))
    pieces = out.numel() // piece
    which = integers(0, len(words), (pieces,), g)
    first = which[: len(words)]
    first.copy_(torch.arange(first.numel(), device=g.device))
    places = torch.arange(pieces, device=g.device) * piece + integers(0, piece, (pieces,), g)
    numbers = torch.tensor([float(word) for word in words], device=g.device, dtype=torch.float32)
    out.view(-1)[places] = numbers[which]
    return out


def _labels(classes: int, shape: tuple[int, int], g: Generator) -> Tensor:
    """Any class, but the last one and the first one among them: a label of too few bits shows at the last of many."""
    out = integers(0, classes, shape, g)
    out.view(-1)[:1] = classes - 1
    out.view(-1)[1:2] = 0
    return out


def _index(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    count, *others = (int(word) for word in recipe.split(":")[1:])
    out = _labels(count, shape, g).view(-1)
    size, half = out.numel(), max(2, out.numel() // 2)
    twice, elsewhere = (integers(0, ONE_IN, (size,), g) == 0 for _ in range(2))
    # Some of the first half come again, whatever the count: what has to add up is then not stored only.
    twice[:half], twice[half : half + 1] = False, True
    out = torch.where(twice, out[integers(0, half, (size,), g).clamp(max=size - 1)], out)
    if others:
        elsewhere[: half + 1], elsewhere[half + 1 : half + 2] = False, True
        out = torch.where(elsewhere, torch.tensor(others, device=g.device)[integers(0, len(others), (size,), g)], out)
    return out[torch.randperm(size, generator=g, device=g.device)].view(shape)


def _distinct(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    count, width = (int(word) for word in recipe.split(":")[1:])
    numbers = torch.randperm(count, generator=g, device=g.device)
    if width < count:
        # Each row is a piece of one permutation; the first has the last number and the first one.
        inner = numbers[(numbers != 0) & (numbers != count - 1)]
        numbers = torch.cat([torch.tensor([count - 1, 0], device=g.device), inner])
    first = integers(0, count, (shape[0] * shape[1] // width, 1), g)
    first[:1] = 0
    places = torch.randperm(width, generator=g, device=g.device)
    return numbers[(first + places) % count].view(shape)


_LISTED = {"range": _range, "choice": _choice, "rows": _whole_rows, "equal": _equal, "index": _index, "distinct": _distinct}


def _raw(spec: TensorSpec, cell: Cell, position: int, g: Generator) -> Tensor:
    rows = 1
    for size in spec.shape[:-1]:
        rows *= size
    shape = (rows, spec.shape[-1] if spec.shape else 1)
    if "|" in cell.values:
        recipe = cell.values.split("|")[position]
        kind = recipe.partition(":")[0]
        return _LISTED[kind](recipe, shape, g) if kind in _LISTED else OPERAND_RECIPES[recipe](shape, g)
    if spec.dtype == "int8":
        return integers(-128, 128, shape, g)
    if spec.dtype == "int64":
        return _labels(cell.inputs[0].shape[-1], shape, g)
    usual = NEARLY_USUAL.get(cell.values, {}).get(spec.name)
    if usual and spec.shape != (1,):
        return usual(shape, cell.inputs[0].shape[-1], g)
    if spec.name == "scale":
        return _around_one(shape, g) if spec.shape == (1,) else _row_scales(cell, shape, g)
    if (cell.values == "one_hot" and spec.name in _COMPANIONS) or (cell.values == "closed" and spec.name != "gate"):
        return normal(shape, g)
    return PARAMETERS.get(spec.name, RECIPES[cell.values])(shape, g)


def place(spec: TensorSpec, values: Tensor) -> Tensor:
    """`values` laid out as `spec` asks: its strides and storage offset, gaps filled with NaN (integers: the smallest value; bool: True)."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    shaped = values.to(dtype).reshape(spec.shape)
    if spec.offset == 0 and shaped.stride() == spec.strides:
        return shaped
    extent = spec.offset + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True)) + 1
    filler = float("nan") if dtype.is_floating_point else True if dtype == torch.bool else torch.iinfo(dtype).min
    base = torch.full((max(extent, spec.offset, 1),), filler, dtype=dtype, device=values.device)
    return base.as_strided(spec.shape, spec.strides, spec.offset).copy_(shaped)


def draw(cell: Cell, seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """The inputs of `cell`, in order, on `device`. Same seed, device and torch version: same bits."""
    tensors = []
    for position, spec in enumerate(cell.inputs):
        generator = generator_for(seed, cell.name, position, spec.name, device)
        huge = math.prod(spec.shape) > HUGE_ELEMENTS and cell.values == "normal" and cell.scales[position] == 1.0
        if huge and spec.name not in PARAMETERS and _is_plain(spec):
            tensors.append(_huge(spec, generator))
        else:
            tensors.append(place(spec, _scaled(spec, cell, position, _raw(spec, cell, position, generator))))
    return tuple(tensors)


def _scaled(spec: TensorSpec, cell: Cell, position: int, raw: Tensor) -> Tensor:
    if raw.is_floating_point() and cell.scales[position] != 1.0:
        raw.mul_(cell.scales[position])
    if spec.dtype == "float16" and cell.values != "nonfinite":
        raw.clamp_(-HALF_MAX, HALF_MAX)
    return raw


def _is_plain(spec: TensorSpec) -> bool:
    return spec.offset == 0 and torch.empty(spec.shape, device="meta").stride() == spec.strides


def _huge(spec: TensorSpec, g: Generator) -> Tensor:
    """In its own dtype from the start: by way of fp32 it would need three times its memory, which takes longer to get than to fill."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype == torch.int8:
        return torch.randint(-128, 128, spec.shape, generator=g, device=g.device, dtype=dtype)
    return torch.randn(spec.shape, generator=g, device=g.device, dtype=dtype)
