"""Derives the cells of a user's reference from its examples.

Shapes, dtypes, strides and alignment are those of the examples. An expanded operand becomes
contiguous, because the judge writes each element to its own place. Each example is judged as it is,
and with redrawn values.

Redrawn values have the example's kind of distribution:

- Integers lie between the example's smallest and largest, or among its own if most are missing.
  Integers that number the rows of something take all numbers that the reference accepts
  (`numbering.py`).
- Masks have both values.
- Floats are uniform from 0 if the example has no negative number, else normal, with its magnitude.
  A few different floats are drawn among themselves.
- A tensor with infinities or NaN stays as it is.

Further cells have 1/64, 8, 256 and 2^-20 times that magnitude, zeros, or both signs. Others have
the structures that expose wrong kernels (constant, shifted, cancelling, one-hot rows). A cell is
left out if the reference fails or is not finite there. At 2^-20 it must also be accurate in fp32.

Masks get a row of each value in some cells, if the reference stays finite and accurate. In two more
cells one value is seldom. In one more cell, a tenth of each operand equals the numbers that the
reference compares it with. If columns are independent, the operand with the most elements meets the
middle between two rounding steps. Only one operand does so, because a quotient of two such operands
would distinguish a reciprocal. A reference with outputs of eight bits gets a cell of exact ties.

An example of `--input` comes at the sizes of its family (`family.py`): all cells at the least
sizes, few at the others. A few cells at the least sizes have other numbers among the arguments.

The timed cell of the gpu profile is the largest example, or one at the family's timed sizes. The
cpu profile has all cells of the smallest example and two more small ones. Other examples have the
first cell and the example itself, because the interpreter is slow. Cells with
implementation-defined answers (`implementation_defined.py`) are left out, except for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, prod

from torch import Tensor

from referee.ops.operand_recipes import TIE
from referee.ops.spec import Cell, Role, Scalar, TensorSpec
from referee.ops.task import inputs_of
from referee.ops.thresholds import numbers_to_meet
from referee.ops.torch_compat import as_tuple, computable
from referee.ops.traits import Traits, traits_of
from referee.reference.evaluating import (
    CHECKED_ELEMENTS,
    SEEDS,
    can_be_judged,
    is_taken,
    label_of,
)
from referee.reference.kinds import (
    FEW,
    OTHER_INTEGERS,
    OWN,
    SIGNED_INTEGERS,
    USUAL_INTEGERS,
    WIDE_INTEGERS,
    Kind,
    joined,
)
from referee.reference.numbering import numbering
from referee.reference.reference import Function

MASKS = (FEW, "choice:0.0:1.0")
SELDOM = {"sparse": "choice:" + "0:" * 95 + "1", "dense": "choice:" + "1:" * 95 + "0"}
"""Recipes of masks in which one value is seldom, by cell label. Most parts of a row lack it."""
GRID = "_grid"
BYTES, BYTE_GRID = ("int8", "uint8"), f"byte{GRID}"
EQUAL = "equal:"
_FACTORS = {
    "given": 1.0, "small": 1.0 / 64.0, "large": 8.0, "mixed": 1.0, "signed": 1.0,
    "huge": 256.0, "tiny": 2.0**-20, "zero": 0.0, "equal": 1.0, "itself": 1.0, "sparse": 1.0, "dense": 1.0,
    "ties": 1.0,
}  # fmt: skip
_SHOWING = ("given", "tiny", "small", "zero", "huge")
"""Labels of cells with other numbers among the arguments, tried in order."""
CLEARLY = 0.05
"""Share of an answer that a number must change to count as seen."""
# Values of whole rows in masks, by cell label, tried in order. A mask of a single row has no other
# values then, so it gets them in other cells.
_ROWS = {"large": ("0:1", "1", "0"), "zero": ("0:1", "1", "0")}
_ROWS_OF_ONE = {"small": ("0",), "huge": ("1",)}
Own = Mapping[str, tuple[Tensor | None, ...]]
"""Values that are not drawn, by cell; None for a drawn operand."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One example at one choice of sizes.

    `tensors` are inputs of these sizes. `outputs` are known after an evaluation.
    """

    label: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    kinds: tuple[Kind, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...] = ()
    timed: bool = False


class InstanceCells:
    """The cells of one instance. `eager` and `oracle` take its tensors."""

    def __init__(self, instance: Instance, eager: Function, oracle: Function) -> None:
        self._instance, self._eager, self._oracle = instance, eager, oracle
        self._example, self._inputs = instance.tensors, instance.inputs
        self.kinds = list(instance.kinds)
        self._number_rows()

    @property
    def own(self) -> tuple[Tensor | None, ...]:
        """The values of operands that are not drawn."""
        return tuple(
            tensor if kind.recipe == OWN else None
            for kind, tensor in zip(self.kinds, self._example, strict=True)
        )

    def _number_rows(self) -> None:
        """Let operands that number rows take every number, unless the reference refuses."""
        shapes, usual = [spec.shape for spec in self._instance.outputs], self.kinds
        numbered = [
            ""
            if kind.recipe.startswith(("index", "distinct"))
            else numbering(self._eager, self._example, shapes, position)
            for position, kind in enumerate(usual)
        ]
        rows = [
            Kind(recipe) if recipe else kind for recipe, kind in zip(numbered, usual, strict=True)
        ]
        anything = [_any_integer(spec, kind) for spec, kind in zip(self._inputs, rows, strict=True)]
        signed = [
            _signed_integer(spec, kind) for spec, kind in zip(self._inputs, rows, strict=True)
        ]
        for wanted in (signed, anything, rows):
            if wanted == usual:
                continue
            self.kinds = wanted
            if is_taken(self._eager, self.cell("given", self.recipes), self.own, range(SEEDS)):
                return
        self.kinds = usual

    def traits(self) -> Traits:
        """The reference's traits at redrawn values, or at the example's own if it refuses those."""
        if sum(tensor.numel() for tensor in self._example) > CHECKED_ELEMENTS:
            return Traits()
        drawn = self.cell("given", self.recipes)
        inputs = inputs_of(drawn, self.own, 0) if self._judges(drawn) else self._example
        return traits_of(self._eager, self._oracle, inputs)

    @property
    def recipes(self) -> list[str]:
        """The recipes of all operands."""
        return [kind.recipe for kind in self.kinds]

    def cell(self, label: str, recipes: Sequence[str]) -> Cell:
        """The cell of that label with these recipes."""
        role: Role = "bench" if self._instance.timed and label == "given" else "required"
        kinds, factor = list(zip(self.kinds, recipes, strict=True)), _FACTORS[label]
        scales = tuple(_scale(kind, one) * factor if kind.scaled else 1.0 for kind, one in kinds)
        values = "".join(f"{kind.tied(recipe)}|" for kind, recipe in kinds)
        name = f"{self._instance.label}-{label}"
        return Cell(
            name, self._inputs, self._instance.outputs, values, scales, role, self._instance.scalars
        )

    def itself(self) -> Cell:
        """The cell of the example as it is."""
        return self.cell("itself", [OWN] * len(self._example))

    def usual(self) -> list[Cell]:
        """The cell of redrawn values like the example's, if the reference takes them."""
        return [cell for cell in [self.cell("given", self.recipes)] if self._judges(cell)]

    def few(self) -> list[Cell]:
        """The usual cell, and one of many structures."""
        mixed = ["mixed" if recipe == "normal" else recipe for recipe in self.recipes]
        cells = [self.cell("mixed", mixed)] if mixed != self.recipes else []
        return [*self.usual(), *(cell for cell in cells if self._judges(cell))]

    def cells(self, traits: Traits) -> list[Cell]:
        """The cells of redrawn values that the reference takes."""
        given = self.recipes
        signed = self._signed(given)
        mixed = ["mixed" if recipe == "normal" else recipe for recipe in given]
        large, most = list(given), self._largest()
        if most is not None:
            large[most] = (
                large[most] + GRID if traits.mixes and not any(traits.mixes) else large[most]
            )
        recipes = {
            "given": given,
            "small": given,
            "large": large,
            "mixed": mixed,
            "signed": signed,
            "huge": [
                WIDE_INTEGERS[spec.dtype] if recipe == SIGNED_INTEGERS else recipe
                for spec, recipe in zip(self._inputs, signed, strict=True)
            ],
        }
        if most is not None:
            recipes["tiny"] = given
        if most is not None and any(spec.dtype in BYTES for spec in self._instance.outputs):
            recipes["ties"] = [*given[:most], BYTE_GRID, *given[most + 1 :]]
        recipes["zero"] = given
        recipes["equal"] = self._equal(given)
        for label, recipe in SELDOM.items():
            recipes[label] = [recipe if one in MASKS else one for one in given]
        again = ("mixed", "signed", "equal", *SELDOM)
        cells = [
            self.cell(label, wanted)
            for label, wanted in recipes.items()
            if label not in again or wanted != given
        ]
        return [self._with_whole_rows(cell) for cell in cells if self._judges(cell)]

    def _largest(self) -> int | None:
        scaled = [
            (prod(spec.shape), -position)
            for position, spec in enumerate(self._inputs)
            if self.kinds[position].scaled
        ]
        return -max(scaled)[1] if scaled else None

    def _with_whole_rows(self, cell: Cell) -> Cell:
        """The cell with a row of each value in its masks, if the reference stays finite."""
        label = label_of(cell)
        for position, spec in enumerate(cell.inputs):
            width = width_of(spec)
            rows = _ROWS if width < prod(spec.shape) else _ROWS_OF_ONE
            recipes = [recipe.partition(TIE)[0] for recipe in cell.values.split("|")[:-1]]
            for wanted in rows.get(label, ()) if recipes[position] in MASKS and width > 1 else ():
                recipes[position] = f"rows:{width}:{wanted}"
                tried = self.cell(label, recipes)
                if can_be_judged(self._eager, self._oracle, tried, self.own, rows=True):
                    cell = tried
                    break
        return cell

    def _signed(self, recipes: Sequence[str]) -> list[str]:
        """The recipes, with both signs for each positive operand if the reference takes them."""
        found = list(recipes)
        for position, recipe in enumerate(recipes):
            # Structures need several rows.
            tries = ("mixed", "normal") if len(self._inputs[position].shape) > 1 else ("normal",)
            for signed in tries if recipe == "uniform" else ():
                wanted = [*found[:position], signed, *found[position + 1 :]]
                if self._judges(self.cell("signed", wanted)):
                    found = wanted
                    break
        return found

    def _equal(self, recipes: Sequence[str]) -> list[str]:
        """The recipes, with some elements equal to numbers that the reference compares with."""
        found = list(recipes)
        try:
            met = numbers_to_meet(self._eager, inputs_of(self.cell("given", recipes), self.own, 0))
        except Exception:
            # The reference takes no drawn values.
            return found
        for position, numbers in met.items():
            if self.kinds[position].scaled and self._example[position].numel():
                scale = self.kinds[position].scale
                found[position] = f"{EQUAL}{recipes[position]}:{scale!r}:{joined(numbers)}"
        return found

    def _judges(self, cell: Cell) -> bool:
        return can_be_judged(self._eager, self._oracle, cell, self.own)


Forms = Callable[[tuple[Scalar, ...]], tuple[Function, Function, Function | None]]


def with_scalars(
    cells: InstanceCells,
    forms: Forms,
    usual: tuple[Scalar, ...],
    others: Sequence[tuple[Scalar, ...]],
) -> Iterator[Cell]:
    """The usual cell with other numbers among the arguments, if the reference takes them.

    `forms` gives the reference's forms for a choice of numbers. A number that hardly changes the
    answers there, as an epsilon does, also gets a cell of other magnitudes where it changes them.
    """
    for number, scalars in enumerate(others, start=1):
        left = {one for one in scalars if one not in usual}
        for label in _SHOWING if left else ("given",):
            cell = replace(cells.cell(label, cells.recipes), role="required", scalars=scalars)
            eager, oracle, _ = forms(scalars)
            if not can_be_judged(eager, oracle, cell, cells.own):
                continue
            seen = {
                one
                for one in left
                if _changes(cell, cells.own, oracle, forms(_but(scalars, one, usual))[1])
            }
            if label == "given" or seen:
                left -= seen
                end = f"scalars{number}" + ("" if label == "given" else f"-{label}")
                yield replace(cell, name=f"{cell.name.rpartition('-')[0]}-{end}")
            if not left:
                break


def _but(scalars: tuple[Scalar, ...], one: Scalar, usual: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The numbers with this one at its usual value."""
    return tuple(
        next(old for old in usual if old.name == one.name) if each is one else each
        for each in scalars
    )


def _changes(cell: Cell, own: Sequence[Tensor | None], one: Function, other: Function) -> bool:
    """Whether two forms of the reference have clearly different answers somewhere in the cell."""
    inputs = inputs_of(cell, own, 0)
    pairs = zip(as_tuple(one(*inputs)), as_tuple(other(*inputs)), strict=True)
    return any(
        bool(((left - right).abs() > CLEARLY * left.abs()).any())
        for left, right in ((computable(a).double(), computable(b).double()) for a, b in pairs)
    )


def width_of(spec: TensorSpec) -> int:
    """Number of elements of a row, along the last dimension of more than one element."""
    return next((size for size in reversed(spec.shape) if size > 1), 1) if prod(spec.shape) else 1


def _any_integer(spec: TensorSpec, kind: Kind) -> Kind:
    """The kind that takes any integer, if nothing is known of the integers."""
    return Kind(USUAL_INTEGERS.get(spec.dtype, OTHER_INTEGERS)) if kind.open else kind


def _signed_integer(spec: TensorSpec, kind: Kind) -> Kind:
    """The kind that takes integers of both signs, if nothing is known of the integers."""
    found = _any_integer(spec, kind)
    return Kind(SIGNED_INTEGERS) if found.recipe == OTHER_INTEGERS else found


def _scale(kind: Kind, recipe: str) -> float:
    """The scale of a recipe: a power of two for grids, so that their numbers stay exact.

    A recipe of equal numbers has its scale inside, so its scale is one.
    """
    if recipe.startswith(EQUAL):
        return 1.0
    return 2.0 ** round(log2(kind.scale)) if recipe.endswith(GRID) and kind.scale else kind.scale
