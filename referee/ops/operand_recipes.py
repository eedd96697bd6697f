"""Recipes that a cell of a user's reference names for one operand.

References may round at unknown steps. In normal_grid and uniform_grid, a column's values are odd
multiples of one of 2^-4 to 2^-9, so that they meet the middle between two steps. Odd multiples are
never in the middle for a symmetric quantiser whose step comes from the column's largest value.
The byte_grid recipe is for such quantisers of a row or a block to eight bits. The largest of every 16
values is 254/256, so the step is 1/128, and odd multiples of 1/256 lie in the middle.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from referee.ops.recipes import ONE_IN, RECIPES, Draw, integers, mixed, normal, uniform
from referee.ops.spec import Cell


def _on_grid(values: Tensor, g: Generator) -> Tensor:
    """Replace each value by the nearest odd multiple of its column's step, keeping the sign."""
    exponents = integers(3, 9, (1, values.shape[1]), g)
    steps = (torch.ones_like(exponents) << exponents).float()
    return (torch.floor(values * steps) + 0.5) / steps


def _normal_grid(shape: tuple[int, int], g: Generator) -> Tensor:
    return _on_grid(normal(shape, g), g)


def _uniform_grid(shape: tuple[int, int], g: Generator) -> Tensor:
    return _on_grid(uniform(shape, g), g)


def _byte_grid(shape: tuple[int, int], g: Generator) -> Tensor:
    out = integers(-BYTE_MOST, BYTE_MOST + 1, shape, g).float()
    out[:, ::BYTE_BLOCK] = BYTE_MOST
    return out / 256.0


def around_one(shape: tuple[int, int], g: Generator) -> Tensor:
    return 0.5 + uniform(shape, g)


# Recipes with parameters are in PARAMETRIC_RECIPES: "range:LOW:HIGH" draws integers in [LOW, HIGH],
# "between:LOW:HIGH" floats in [LOW, HIGH), and "choice:A:B:C" any listed number. "rows:WIDTH:A:B"
# draws 0 or 1, with one row of WIDTH elements all A and another one all B. "equal:RECIPE:SCALE:A:B"
# sets a tenth of a recipe's elements to A or B. "index:COUNT:A:B" draws numbers below COUNT, with
# the first, the last and repeated ones, and some A or B. "distinct:COUNT:WIDTH" draws numbers below
# COUNT without repetition among WIDTH neighbours. Values of "own" come from the example.
BYTE_MOST, BYTE_BLOCK = 254, 16
TIE = "@"
HALVES, PAIRS = f"{TIE}halves", f"{TIE}pairs"
TIES = {HALVES: "both halves of a row alike", PAIRS: "every two neighbours alike"}
"""Ends of a recipe that make elements of a row equal, in words."""
OPERAND_RECIPES: dict[str, Draw] = {
    **RECIPES,
    "mixed": mixed,
    "uniform": uniform,
    "around_one": around_one,
    "own": normal,
    "normal_grid": _normal_grid,
    "uniform_grid": _uniform_grid,
    "byte_grid": _byte_grid,
}


def elements_belong_together(cell: Cell) -> tuple[int, ...]:
    """Positions of operands whose elements depend on each other, so that none may be replaced."""
    recipes = cell.values.split("|")[:-1]
    return tuple(
        place for place, one in enumerate(recipes) if TIE in one or one.startswith("distinct")
    )


def tied(values: Tensor, tie: str) -> Tensor:
    """The values with the elements of each row equal that `tie` names, if the row has halves."""
    half = values.shape[1] // 2
    if values.shape[1] != 2 * half:
        return values
    if tie == HALVES:
        values[:, half:] = values[:, :half]
    elif tie == PAIRS:
        values[:, 1::2] = values[:, 0::2]
    return values


def _range(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    low, high = (int(bound) for bound in recipe.split(":")[1:])
    return integers(low, high + 1, shape, g)


def _between(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    low, high = (float(bound) for bound in recipe.split(":")[1:])
    return low + (high - low) * uniform(shape, g)


def _choice(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    # The numbers are text, so that infinities and 64-bit integers stay exact.
    words = recipe.split(":")[1:]
    whole = all(word.lstrip("-").isdecimal() for word in words)
    numbers = [int(word) if whole else float(word) for word in words]
    listed = torch.tensor(numbers, device=g.device, dtype=torch.int64 if whole else torch.float32)
    return listed[integers(0, len(words), shape, g)]


def _whole_rows(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    width, *values = (int(word) for word in recipe.split(":")[1:])
    out = integers(0, 2, shape, g)
    # Rows of the mask, which differ from its last dimension if that has one element.
    rows = out.view(-1, width)
    for row, value in zip(
        torch.randperm(rows.shape[0], generator=g, device=g.device), values, strict=False
    ):
        rows[row] = value
    return out


def _equal(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    usual, scale, *words = recipe.split(":")[1:]
    out = OPERAND_RECIPES[usual](shape, g).mul_(float(scale))
    # One element in each piece, at a random place. Pieces are shorter if a number would not occur.
    piece = max(1, min(ONE_IN, out.numel() // len(words)))
    pieces = out.numel() // piece
    which = integers(0, len(words), (pieces,), g)
    first = which[: len(words)]
    first.copy_(torch.arange(first.numel(), device=g.device))
    places = torch.arange(pieces, device=g.device) * piece + integers(0, piece, (pieces,), g)
    numbers = torch.tensor([float(word) for word in words], device=g.device, dtype=torch.float32)
    out.view(-1)[places] = numbers[which]
    return out


def labels(classes: int, shape: tuple[int, int], g: Generator) -> Tensor:
    """Random classes with the last and the first, because labels may have too few bits."""
    out = integers(0, classes, shape, g)
    out.view(-1)[:1] = classes - 1
    out.view(-1)[1:2] = 0
    return out


def _index(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    count, *others = (int(word) for word in recipe.split(":")[1:])
    out = labels(count, shape, g).view(-1)
    size, half = out.numel(), max(2, out.numel() // 2)
    twice, elsewhere = (integers(0, ONE_IN, (size,), g) == 0 for _ in range(2))
    # Some values of the first half always repeat, which shows stores where sums are needed.
    twice[:half], twice[half : half + 1] = False, True
    out = torch.where(twice, out[integers(0, half, (size,), g).clamp(max=size - 1)], out)
    if others:
        elsewhere[: half + 1], elsewhere[half + 1 : half + 2] = False, True
        out = torch.where(
            elsewhere,
            torch.tensor(others, device=g.device)[integers(0, len(others), (size,), g)],
            out,
        )
    return out[torch.randperm(size, generator=g, device=g.device)].view(shape)


def _distinct(recipe: str, shape: tuple[int, int], g: Generator) -> Tensor:
    count, width = (int(word) for word in recipe.split(":")[1:])
    numbers = torch.randperm(count, generator=g, device=g.device)
    if width < count:
        # Each row is a piece of one permutation; the first row has the last and the first number.
        inner = numbers[(numbers != 0) & (numbers != count - 1)]
        numbers = torch.cat([torch.tensor([count - 1, 0], device=g.device), inner])
    first = integers(0, count, (shape[0] * shape[1] // width, 1), g)
    first[:1] = 0
    places = torch.randperm(width, generator=g, device=g.device)
    return numbers[(first + places) % count].view(shape)


PARAMETRIC_RECIPES = {
    "range": _range, "between": _between, "choice": _choice, "rows": _whole_rows, "equal": _equal, "index": _index, "distinct": _distinct,
}  # fmt: skip
