"""Cells of a user's reference, derived from its example inputs.

Shapes, dtypes, strides and alignment are those of the examples; only an operand whose elements share memory (an expanded one) is made
contiguous, because the judge writes each element to a place of its own. Each example is judged as it is, and with values that are redrawn
with the same kind of distribution: integers between the example's smallest and largest value, or among its own where most between are
missing, or whatever the reference takes where they number the rows of something (`user_index.py`); masks of both values; floats uniform
from 0 when the example is nowhere negative, else normal, with the example's own magnitude; few different floats among themselves; a
tensor with infinities or NaN stays as it is. Redrawn values also come at 1/64 and at 8 times their magnitude, with the structures that
find out kernels (constant, shifted, cancelling, one-hot rows), with both signs where the example has none, at 256 times and 2^-20 of
their magnitude, and as zeros; of these cells those are left out that the reference cannot be evaluated on or does not stay finite on. At
2^-20 it must also be accurate in fp32, and call no function whose usual forms are not.

Masks (bools, and numbers that are only 0 and 1) get a row of each value in some cells, as far as the reference stays finite and its usual
forms right. Where the reference compares operands themselves with numbers, and its answers jump there, a tenth of such an operand is
equal to these in one more cell. Where no column heeds another, the operand with the most elements meets the middle between two steps of a
rounding, at 8 times its magnitude. Only that one, because a quotient of two such operands would be in the middle for the reference and not
for a reciprocal.

The largest example is the bench cell of the gpu profile. The cpu profile has all these cells of the smallest one and two more small ones,
and of some others only the first and the example itself, because Triton's interpreter is slow. Where torch leaves open what a reference
answers to redrawn values (`left_open.py`), the cell is left out too, but for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import torch
from torch import Tensor

from referee.ops.cells import Profile
from referee.ops.left_open import is_left_open
from referee.ops.spec import Cell, Role, TensorSpec
from referee.ops.thresholds import numbers_to_meet
from referee.ops.traits import Traits, traits_of
from referee.ops.user_checks import is_accurate, is_right_by_logits
from referee.ops.user_file import UserReferenceError
from referee.ops.user_index import numbering
from referee.ops.user_layout import Unusable, output_spec, spec_of
from referee.ops.values import draw, place

CPU_EXAMPLES, MOST_EXAMPLES, CPU_ELEMENTS = 3, 12, 1 << 15
SEEDS = 4  # draws that a reference is tried with
CHECKED_ELEMENTS = 1 << 22
"""Up to so many elements a reference is evaluated at every cell beforehand, in its own dtypes and in float64."""
MOST_LISTED, MOST_FLOATS, SPARSE = 64, 8, 4
OWN = "own"
"""The recipe of an operand whose values are those of the example."""

MASKS = ("range:0:1", "choice:0.0:1.0")

Function = Callable[..., Any]


class Given(dict[str, tuple[Tensor | None, ...]]):
    """The values that are not drawn, by cell, and the names of the operands that the reference changes in place."""

    changed: tuple[str, ...] = ()
    left_out: int = 0
    """So many examples are too large, or too many, to be judged."""


@dataclass(frozen=True)
class _Kind:
    recipe: str
    scale: float = 1.0

    @property
    def scaled(self) -> bool:
        return self.recipe in ("normal", "uniform")


_FACTORS = {
    "given": 1.0, "small": 1.0 / 64.0, "large": 8.0, "mixed": 1.0, "signed": 1.0,
    "huge": 256.0, "tiny": 2.0**-20, "zero": 0.0, "equal": 1.0, "itself": 1.0,
}  # fmt: skip
_FINITE = ("mixed", "signed", "huge", "tiny", "zero", "equal")
# Which masks get whole rows of which values, tried in turn. One that is a single row has no other values then: it gets them elsewhere.
_ROWS = {"large": ("0:1", "1", "0"), "zero": ("0:1", "1", "0")}
_ROWS_OF_ONE = {"small": ("0",), "huge": ("1",)}
GRID = "_grid"
EQUAL = "equal:"


def elements(cell: Cell) -> int:
    """How many elements its inputs have."""
    return sum(prod(spec.shape) for spec in cell.inputs)


def user_cells(
    names: tuple[str, ...], examples: tuple[tuple[Tensor, ...], ...], eager: Function, oracle: Function, profile: Profile
) -> tuple[tuple[Cell, ...], Given, Traits]:
    """The cells of the examples, the values that are not drawn (None for an operand that is), and the traits. Raises Unusable."""
    ordered = sorted(enumerate(examples), key=lambda item: sum(tensor.numel() for tensor in item[1]))
    if profile == "cpu":
        small = [item for item in ordered[1:] if max(tensor.numel() for tensor in item[1]) <= CPU_ELEMENTS]
        chosen = [ordered[0], *small[: MOST_EXAMPLES - 1]]
    else:
        chosen = ordered
    largest = ordered[-1][0]
    made: list[Cell] = []
    given = Given()
    given.left_out = len(ordered) - len(chosen)
    traits: Traits | None = None
    for number, (index, example) in enumerate(chosen):
        one = _Example(index, names, example, eager, oracle, timed=profile == "gpu" and index == largest)
        # The smallest comes first.
        traits = traits or one.traits()
        made += one.cells(traits) if profile == "gpu" or number < CPU_EXAMPLES else one.usual()
        given |= {cell.name: one.own for cell in made if cell.name not in given and any(tensor is not None for tensor in one.own)}
        itself = one.cell("itself", [OWN] * len(example))
        made.append(itself)
        given[itself.name] = example
    return tuple(made), given, traits or Traits()


class _Example:
    """One example on its way to cells. Raises Unusable where the reference fails on it."""

    def __init__(
        self, index: int, names: tuple[str, ...], example: tuple[Tensor, ...], eager: Function, oracle: Function, *, timed: bool
    ) -> None:
        self._index, self._example, self._eager, self._oracle, self._timed = index, example, eager, oracle, timed
        self._inputs = tuple(spec_of(name, tensor) for name, tensor in zip(names, example, strict=True))
        self._outputs = _outputs(eager, oracle, example)
        self._kinds = [_kind(tensor) for tensor in example]
        self._number_rows()
        self.own = tuple(tensor if kind.recipe == OWN else None for kind, tensor in zip(self._kinds, example, strict=True))

    def _number_rows(self) -> None:
        """Let operands that number something take every number, unless these are refused together."""
        shapes, usual = [spec.shape for spec in self._outputs], self._kinds
        numbered = [numbering(self._eager, self._example, shapes, position) for position in range(len(usual))]
        if any(numbered):
            self._kinds = [_Kind(recipe) if recipe else kind for recipe, kind in zip(numbered, usual, strict=True)]
            own = tuple(tensor if kind.recipe == OWN else None for kind, tensor in zip(self._kinds, self._example, strict=True))
            if not _is_taken(self._eager, self.cell("given", [kind.recipe for kind in self._kinds]), own, range(SEEDS)):
                self._kinds = usual

    def traits(self) -> Traits:
        """What the reference does at redrawn values, or at the example's own where it takes no others."""
        if sum(tensor.numel() for tensor in self._example) > CHECKED_ELEMENTS:
            return Traits()
        drawn = self.cell("given", [kind.recipe for kind in self._kinds])
        return traits_of(self._eager, self._oracle, inputs_of(drawn, self.own, 0) if self._judges(drawn) else self._example)

    def cell(self, label: str, recipes: Sequence[str]) -> Cell:
        role: Role = "bench" if self._timed and label == "given" else "required"
        kinds = zip(self._kinds, recipes, strict=True)
        scales = tuple(_scale(kind, recipe) * _FACTORS[label] if kind.scaled else 1.0 for kind, recipe in kinds)
        values = "".join(f"{recipe}|" for recipe in recipes)
        return Cell(f"example{self._index}-{label}", self._inputs, self._outputs, values, scales, role)

    def usual(self) -> list[Cell]:
        """That of redrawn values like the example's own, if the reference takes them."""
        return [cell for cell in [self.cell("given", [kind.recipe for kind in self._kinds])] if self._judges(cell)]

    def cells(self, traits: Traits) -> list[Cell]:
        """Those of redrawn values that the reference takes."""
        given = [kind.recipe for kind in self._kinds]
        signed = self._signed(given)
        mixed = ["mixed" if recipe == "normal" else recipe for recipe in given]
        large, most = list(given), self._largest()
        if most is not None:
            large[most] = large[most] + GRID if traits.mixes and not any(traits.mixes) else large[most]
        recipes = {"given": given, "small": given, "large": large, "mixed": mixed, "signed": signed, "huge": signed}
        if most is not None:
            recipes["tiny"] = given
        recipes["zero"] = given
        recipes["equal"] = self._equal(given)
        again = ("mixed", "signed", "equal")
        cells = [self.cell(label, wanted) for label, wanted in recipes.items() if label not in again or wanted != given]
        return [self._with_whole_rows(cell) for cell in cells if self._judges(cell)]

    def _largest(self) -> int | None:
        """The operand with the most elements whose values have a scale."""
        scaled = [(prod(spec.shape), -position) for position, spec in enumerate(self._inputs) if self._kinds[position].scaled]
        return -max(scaled)[1] if scaled else None

    def _with_whole_rows(self, cell: Cell) -> Cell:
        """The cell with a row of each value in its masks, as far as the reference stays finite."""
        label = cell.name.rpartition("-")[2]
        for position, spec in enumerate(cell.inputs):
            width = width_of(spec)
            rows = _ROWS if width < prod(spec.shape) else _ROWS_OF_ONE
            recipes = cell.values.split("|")[:-1]
            for wanted in rows.get(label, ()) if recipes[position] in MASKS and width > 1 else ():
                recipes[position] = f"rows:{width}:{wanted}"
                tried = self.cell(label, recipes)
                if _can_be_judged(self._eager, self._oracle, tried, self.own, rows=True):
                    cell = tried
                    break
        return cell

    def _signed(self, recipes: Sequence[str]) -> list[str]:
        """The recipes, with both signs for each operand that had none and for which the reference takes them."""
        found = list(recipes)
        for position, recipe in enumerate(recipes):
            # Structures take several rows.
            tries = ("mixed", "normal") if len(self._inputs[position].shape) > 1 else ("normal",)
            for signed in tries if recipe == "uniform" else ():
                wanted = [*found[:position], signed, *found[position + 1 :]]
                if self._judges(self.cell("signed", wanted)):
                    found = wanted
                    break
        return found

    def _equal(self, recipes: Sequence[str]) -> list[str]:
        """The recipes, with some elements of each operand equal to the numbers that the reference compares it with."""
        found = list(recipes)
        try:
            met = numbers_to_meet(self._eager, inputs_of(self.cell("given", recipes), self.own, 0))
        except Exception:
            # It takes no drawn values.
            return found
        for position, numbers in met.items():
            if self._kinds[position].scaled and self._example[position].numel():
                found[position] = f"{EQUAL}{recipes[position]}:{self._kinds[position].scale!r}:{_joined(numbers)}"
        return found

    def _judges(self, cell: Cell) -> bool:
        return _can_be_judged(self._eager, self._oracle, cell, self.own)


def inputs_of(cell: Cell, own: Sequence[Tensor | None], seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """The cell's inputs where some are given: fresh copies of these, and the others drawn."""
    drawn = draw(cell, seed, device)
    return tuple(
        one if tensor is None else place(spec, tensor.to(device, copy=True))
        for spec, one, tensor in zip(cell.inputs, drawn, own, strict=True)
    )


def _kind(tensor: Tensor) -> _Kind:
    if tensor.dtype == torch.bool:
        return _Kind("range:0:1")
    if tensor.numel() == 0:
        return _Kind("normal" if tensor.is_floating_point() else "range:0:1")
    if not tensor.is_floating_point():
        low, high = int(tensor.min()), int(tensor.max())
        different = _different(tensor, MOST_LISTED)
        sparse = different and SPARSE * len(different) < high - low + 1
        return _Kind(f"choice:{_joined(different)}" if sparse else f"range:{low}:{high}")
    if not bool(tensor.isfinite().all()):
        return _Kind(OWN)
    different = _different(tensor, MOST_FLOATS)
    if 1 < len(different) < tensor.numel():
        return _Kind(f"choice:{_joined(different)}")
    values = tensor.detach().double()
    if bool((values >= 0).all()):
        return _Kind("uniform", float(values.max()) or 1.0)
    return _Kind("normal", float(values.square().mean().sqrt()))


def _scale(kind: _Kind, recipe: str) -> float:
    """A power of two where the recipe's numbers are to stay short: others never lie in the middle between two steps.

    Numbers to be equal to are not scaled: that recipe has the scale of the others in itself.
    """
    if recipe.startswith(EQUAL):
        return 1.0
    return 2.0 ** round(log2(kind.scale)) if recipe.endswith(GRID) and kind.scale else kind.scale


def width_of(spec: TensorSpec) -> int:
    """How many elements a row has: a row is along the last dimension of more than one, and a tensor of none or one has none."""
    return next((size for size in reversed(spec.shape) if size > 1), 1) if prod(spec.shape) else 1


def _different(tensor: Tensor, most: int) -> list[float]:
    """The different values in order, empty where there are more than `most`."""
    # Sorting millions takes seconds, and most tensors have too many values in any piece.
    for piece in (tensor.detach().flatten()[: 1 << 12], tensor.detach().flatten()):
        found: list[float] = sorted(set(piece.tolist())) if piece.numel() <= 1 << 20 else []
        if len(found) > most:
            return []
    return found


def _joined(values: Sequence[float]) -> str:
    return ":".join(repr(value) for value in values)


def _outputs(eager: Function, oracle: Function, inputs: tuple[Tensor, ...]) -> tuple[TensorSpec, ...]:
    try:
        outputs = _tuple(eager(*inputs))
    except UserReferenceError:
        raise
    except Exception as error:
        raise Unusable(f"the reference fails on its own example: {_told(error)}") from error
    if sum(tensor.numel() for tensor in inputs) <= CHECKED_ELEMENTS:
        try:
            exact = _tuple(oracle(*inputs))
        except Exception as error:
            raise Unusable(f"the reference cannot be evaluated in float64, by which it is judged: {_told(error)}") from error
        if [tuple(out.shape) for out in exact] != [tuple(out.shape) for out in outputs]:
            raise Unusable("the reference returns other shapes in float64, by which it is judged")
    names = ("out",) if len(outputs) == 1 else tuple(f"out{i}" for i in range(len(outputs)))
    return tuple(output_spec(name, out, inputs) for name, out in zip(names, outputs, strict=True))


def _is_taken(eager: Function, cell: Cell, own: Sequence[Tensor | None], seeds: Iterable[int]) -> bool:
    """Whether the reference gives answers of the usual shapes to what these seeds draw."""
    try:
        return all(_has_shapes(_tuple(eager(*inputs_of(cell, own, seed))), cell) for seed in seeds)
    except Exception:
        return False


def _has_shapes(outputs: Sequence[Tensor], cell: Cell) -> bool:
    return [tuple(out.shape) for out in outputs] == [spec.shape for spec in cell.outputs]


def _can_be_judged(eager: Function, oracle: Function, cell: Cell, own: Sequence[Tensor | None], *, rows: bool = False) -> bool:
    """Whether the reference takes redrawn values of this kind: it does not fail, and stays finite where that is asked for.

    `rows`: its masks have whole rows of one value.
    """
    label = cell.name.rpartition("-")[2]
    finite = rows or label in _FINITE
    if label == "tiny" and elements(cell) > CHECKED_ELEMENTS:
        return False
    if elements(cell) > CHECKED_ELEMENTS and not finite:
        return True
    # One draw may be taken by luck, one of integers more often.
    most = CHECKED_ELEMENTS if any("int" in spec.dtype for spec in cell.inputs) else CPU_ELEMENTS
    if elements(cell) <= most and not _is_taken(eager, cell, own, range(1, SEEDS)):
        return False
    inputs = inputs_of(cell, own, 0)
    try:
        outputs = _tuple(eager(*inputs))
        exact = _tuple(oracle(*inputs)) if elements(cell) <= CHECKED_ELEMENTS else outputs
    except Exception:
        return False
    if not _has_shapes(outputs, cell):
        return False
    # The timed cell is judged in any case.
    seeds = range(SEEDS if elements(cell) <= CPU_ELEMENTS else elements(cell) <= CHECKED_ELEMENTS)
    if label != "given" and any(is_left_open(eager, inputs_of(cell, own, seed)) for seed in seeds):
        return False
    if label == "tiny" and not is_accurate(eager, inputs, exact):
        return False
    if rows and not is_right_by_logits(eager, inputs, exact):
        return False
    if finite:
        return all(bool(output.isfinite().all()) for output in outputs)
    return all(bool((out.isfinite() | ~want.isfinite()).all()) for out, want in zip(outputs, exact, strict=True))


def _tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
