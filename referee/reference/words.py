"""Describes, for people, the values at which a user's reference is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from referee.ops.operand_recipes import TIE, TIES
from referee.ops.spec import Cell, TensorSpec
from referee.reference.cells import EQUAL, GRID, MASKS, width_of
from referee.reference.evaluating import label_of
from referee.reference.kinds import OWN
from referee.reference.layout import lies_apart


def drawn_values(cells: Sequence[Cell], given: Mapping[str, Sequence[Tensor | None]]) -> str:
    """The values of each operand in the cells. `given` has those that are not drawn."""
    operands_in_words = []
    for position, spec in enumerate(cells[0].inputs):
        drawn = [cell.values.split("|")[position] for cell in cells]
        recipes = dict.fromkeys(recipe.partition(TIE)[0] for recipe in drawn)
        alike = {words for tie, words in TIES.items() if any(one.endswith(tie) for one in drawn)}
        operands_in_words.append(
            f"{spec.name} {_in_words([recipe for recipe in recipes if recipe != OWN] or [OWN])}"
            f"{_no_rows(spec, list(recipes))}{''.join(f', {words}' for words in alike)}"
        )
    operands = [
        item for cell in cells for item in zip(cell.inputs, given.get(cell.name, ()), strict=False)
    ]
    apart = ", ".join(
        dict.fromkeys(
            spec.name for spec, tensor in operands if tensor is not None and not lies_apart(tensor)
        )
    )
    but = f", but made contiguous where elements share memory: {apart}" if apart else ""
    tiny = any(label_of(cell) == "tiny" for cell in cells)
    redrawn = any(scale != 1.0 for cell in cells for scale in cell.scales)
    no = "no NaN or infinities" if tiny or not redrawn else "no NaN, infinities or tiny values"
    itself = (
        "; and the examples as they are"
        if any(label_of(cell) == "itself" for cell in cells)
        else ""
    )
    return f"{'; '.join([*operands_in_words, *_numbers(cells)])}; {no}{itself}{but}"


def _numbers(cells: Sequence[Cell]) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for scalar in (scalar for cell in cells for scalar in cell.scalars):
        found.setdefault(scalar.name, {})[f"{scalar.value:g}"] = None
    return [
        f"{name} {'only ' if len(values) == 1 else ''}{', '.join(values)}"
        for name, values in found.items()
    ]


def _no_rows(spec: TensorSpec, recipes: Sequence[str]) -> str:
    """The value that every row of a mask contains, in words."""
    if not any(recipe in MASKS for recipe in recipes) or width_of(spec) == 1:
        return ""
    whole = {
        value for recipe in recipes if recipe.startswith("rows:") for value in recipe.split(":")[2:]
    }
    names = {"0": "True", "1": "False"} if spec.dtype == "bool" else {"0": "1", "1": "0"}
    missed = [f"no row without a {other}" for value, other in names.items() if value not in whole]
    return f" ({', '.join(missed)})" if missed else ""


def _in_words(recipes: Sequence[str]) -> str:
    kind, _, rest = recipes[0].partition(":")
    met = dict.fromkeys(
        f"{float(word):g}"
        for recipe in recipes
        if recipe.startswith(EQUAL)
        for word in recipe.split(":")[3:]
    )
    equal = (
        f", some equal to {', '.join(list(met)[:4])}{' and so on' if len(met) > 4 else ''}"
        if met
        else ""
    )
    recipes = [recipe.removesuffix(GRID) for recipe in recipes if not recipe.startswith(EQUAL)]
    if kind == "range":
        low, high = rest.split(":")
        return f"only {low}" if low == high else f"{low} to {high}"
    if kind == "between":
        return "{:g} to {:g}".format(*map(float, rest.split(":")))
    if kind == "index":
        most, *below = rest.split(":")
        return f"0 to {int(most) - 1}{', some ' if below else ''}{', '.join(below)}"
    if kind == "distinct":
        return f"0 to {int(rest.partition(':')[0]) - 1}, none of them twice"
    if kind == "choice":
        values = rest.split(":")
        return f"among {', '.join(values[:4])}{' and so on' if len(values) > 4 else ''}"
    if kind == "uniform":
        return f"{'never negative' if set(recipes) == {'uniform'} else 'not negative, and of both signs'}{equal}"
    return "as in the examples only" if kind == OWN else f"of both signs{equal}"
