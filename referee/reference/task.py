"""Makes the task of a loaded reference: its cells and its trusted forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from torch import Tensor

from referee.ops.cells import Profile
from referee.ops.promote import in_float64
from referee.ops.shipped import shipped
from referee.ops.spec import Cell, Op, Scalar
from referee.ops.task import PUBLIC, Task
from referee.ops.traits import Traits
from referee.reference.asked import Asked
from referee.reference.cells import Instance, InstanceCells, Own, with_scalars
from referee.reference.evaluating import CPU_ELEMENTS, evaluated
from referee.reference.inputs import Number, Sizes
from referee.reference.kinds import Kind
from referee.reference.layout import output_spec
from referee.reference.load import load_reference
from referee.reference.reference import Example, Function, Reference
from referee.reference.shapes import output_specs, outputs_like
from referee.reference.unusable import UnusableReference
from referee.reference.user_torch import user_code

CPU_EXAMPLES, MOST_EXAMPLES = 3, 12
_KEPT = 6
_known: dict[tuple[Asked, str, Profile], Task] = {}


def load_task(asked: Asked, profile: Profile) -> Task:
    """The task of a reference, made again only after its files change.

    Raises UnusableReference with a one-line reason.
    """
    with user_code():
        reference = load_reference(asked)
        key = asked, reference.digest, profile
        if key not in _known:
            while len(_known) >= _KEPT:
                del _known[next(iter(_known))]
            small = _known.get((asked, reference.digest, "cpu"))
            made = task_of(reference, profile, small)
            _known[key] = replace(made, op=_shipped_op(asked) or made.op)
        return _known[key]


def task_of(reference: Reference, profile: Profile, small: Task | None = None) -> Task:
    """The task of a reference. Raises UnusableReference.

    `small` is its task for the cpu profile, if it exists. With `--input`, the gpu profile has the
    same cells and one more.
    """
    op = Op(
        name=reference.title, kind="function", family="user", title=reference.title, formula=reference.summary, difficulty="hard",
        origin="user", arguments=tuple(argument.name for argument in reference.arguments),
    )  # fmt: skip
    forms = _Forms(reference)
    with user_code():
        if small is not None and all(example.own is None for example in reference.examples):
            largest = max(reference.examples, key=_size)
            name = _label(largest, largest.family.base) + "-given"
            given = next(cell for cell in small.cells if cell.name == name)
            timed_cell = _timed_cell(reference, largest, given, small.cells)
            cells = (*_changing(reference, [timed_cell]), *small.cells)
            notes = tuple(_reservations(reference, 0, profile))
            return replace(small, cells=cells, reservations=notes)
        made, own, traits, left_out = _cells(reference, forms, profile)
    if not any(prod(spec.shape) for cell in made for spec in cell.outputs):
        fault = "the reference returns no elements at any example"
        raise UnusableReference(f"{fault}, so every kernel would be right: make them larger")
    usual = scalars_of(reference)
    eager, oracle, timed = forms(usual)
    return Task(
        op, _changing(reference, made), eager, oracle, dict(PUBLIC),
        rowwise=False, given=own, traits=traits, timed=timed, scalars=usual, bind=forms,
        notes=reference.notes, reservations=tuple(_reservations(reference, left_out, profile)),
    )  # fmt: skip


def _changing(reference: Reference, cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells with the positions of the inputs that the reference changes and gives back."""
    named = enumerate(reference.tensors)
    places = tuple(place for place, name in named if name in reference.changes)
    return tuple(replace(cell, changes=places) for cell in cells)


def _shipped_op(asked: Asked) -> Op | None:
    """The catalogue operation of exactly this reference; None for a user's."""
    found = shipped().get(asked.function or "")
    if found and (asked.file, asked.inputs, asked.fixed) == (str(found.file), found.inputs, ()):
        return found.op
    return None


def scalars_of(reference: Reference, values: Sequence[Number] | None = None) -> tuple[Scalar, ...]:
    """The numbers among the arguments, by default with their usual values."""
    usual = [argument.usual for argument in reference.scalars]
    places = [at for at, one in enumerate(reference.arguments) if one.kind == "scalar"]
    names = [argument.name for argument in reference.scalars]
    return tuple(map(Scalar, names, places, usual if values is None else values))


class _Forms:
    """The trusted forms of a reference for given scalars, cached by their values."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._made: dict[tuple[Scalar, ...], tuple[Function, Function, Function | None]] = {}

    def __call__(self, scalars: tuple[Scalar, ...]) -> tuple[Function, Function, Function | None]:
        if scalars not in self._made:
            given = {scalar.name: scalar.value for scalar in scalars}
            values = [given.get(one.name, one.usual) for one in self._reference.scalars]
            eager = _protecting(self._reference.at(values))
            self._made[scalars] = eager, in_float64(eager), self._reference.at(values, timed=True)
        return self._made[scalars]


def _protecting(function: Function) -> Function:
    """`function` on copies of its inputs, with outputs that carry no gradient.

    Threads run it one after the other.
    """

    def protected(*inputs: Tensor) -> Any:
        with user_code():
            result = function(*(tensor.clone() for tensor in inputs))
        several = isinstance(result, tuple)
        return tuple(out.detach() for out in result) if several else result.detach()

    return protected


def _cells(
    reference: Reference, forms: _Forms, profile: Profile
) -> tuple[list[Cell], Own, Traits, int]:
    """All cells, the values that are not drawn, the traits, and the number of omitted examples."""
    chosen, left_out = _chosen(reference.examples, profile)
    largest = max(reference.examples, key=_size)
    made: list[Cell] = []
    own: dict[str, tuple[Tensor | None, ...]] = {}
    traits: Traits | None = None
    for number, example in enumerate(chosen):
        usual = scalars_of(reference, example.scalars)
        eager, oracle, _ = forms(usual)
        timed = profile == "gpu" and example is largest
        files_own = example.own is not None and not (profile == "cpu" and example.family.reduced)
        sizes = example.family.numbers if files_own else example.family.base
        is_timed = timed and files_own
        instance = _instance(reference, example, sizes, eager, oracle, usual, timed=is_timed)
        first = InstanceCells(instance, eager, oracle)
        # The smallest comes first.
        traits = traits or first.traits()
        more = first.cells(traits) if profile == "gpu" or number < CPU_EXAMPLES else first.usual()
        if number == 0:
            more += with_scalars(first, forms, scalars_of(reference), _other_scalars(reference))
        for around in () if files_own else example.family.around:
            instance = _instance(reference, example, around, eager, oracle, usual)
            more += InstanceCells(instance, eager, oracle).few()
        if any(tensor is not None for tensor in first.own):
            own |= {cell.name: first.own for cell in more if cell.inputs == more[0].inputs}
        if files_own:
            itself = first.itself()
            own[itself.name] = example.tensors(sizes)
            more.append(itself)
        elif timed:
            given = first.cell("given", first.recipes)
            more.insert(0, _timed_cell(reference, example, given, more))
        made += more
    return made, own, traits or Traits(), left_out


def _chosen(examples: Sequence[Example], profile: Profile) -> tuple[list[Example], int]:
    """The judged examples, the smallest first, and the number of omitted ones.

    Without a GPU, only few large examples of the file are judged.
    """
    ordered = sorted(examples, key=_size)
    if profile == "gpu":
        return ordered, 0
    small = [
        one
        for one in ordered[1:]
        if max(map(Tensor.numel, one.own or ()), default=0) <= CPU_ELEMENTS
    ]
    chosen = [*ordered[:1], *small[: MOST_EXAMPLES - 1]]
    return chosen, len(ordered) - len(chosen)


def _size(example: Example) -> int:
    return sum(prod(shape) for shape in example.family.shapes(example.family.base))


def _other_scalars(reference: Reference) -> list[tuple[Scalar, ...]]:
    """Choices of further values: each has the next value of every number that has one."""
    most = max((len(argument.values) for argument in reference.scalars), default=0)
    found = []
    for number in range(1, most):
        values = [argument.values[number % len(argument.values)] for argument in reference.scalars]
        found.append(scalars_of(reference, values))
    return found


def _instance(
    reference: Reference,
    example: Example,
    sizes: Sizes,
    eager: Function,
    oracle: Function,
    scalars: tuple[Scalar, ...],
    *,
    timed: bool = False,
) -> Instance:
    tensors = example.tensors(sizes)
    outputs = evaluated(eager, oracle, tensors)
    named = zip(reference.outputs, outputs, strict=True)
    specs = tuple(output_spec(name, out, tensors) for name, out in named)
    return Instance(
        label=_label(example, sizes),
        inputs=example.specs(reference.tensors, sizes),
        outputs=specs,
        kinds=example.kinds_at(sizes),
        tensors=tensors,
        scalars=scalars,
        timed=timed,
    )


def _timed_cell(reference: Reference, example: Example, given: Cell, cells: Sequence[Cell]) -> Cell:
    """The cell at the family's timed sizes, with the kinds of values of `given`."""
    sizes = example.family.timed
    others = [cell for cell in cells if cell.name.startswith(f"{example.label}-")]
    outputs = outputs_like(example.family, others, sizes) or output_specs(reference, example, sizes)
    found = zip(given.values.split("|"), given.scales, example.kinds_at(sizes), strict=False)
    kinds = [
        _at_sizes(recipe, scale, example, sizes) if said.open else said
        for recipe, scale, said in found
    ]
    return Cell(
        f"{_label(example, sizes)}-given", example.specs(reference.tensors, sizes), outputs,
        "".join(f"{kind.tied(kind.recipe)}|" for kind in kinds), tuple(kind.scale for kind in kinds), "bench", given.scalars,
    )  # fmt: skip


def _at_sizes(recipe: str, scale: float, example: Example, sizes: Sizes) -> Kind:
    """A kind found at the least sizes, with bounds that follow the new sizes."""
    name, *numbers = recipe.split(":")
    if name not in ("index", "distinct"):
        return Kind(recipe, scale)
    now = {str(example.family.base[symbol]): str(size) for symbol, size in sizes.items()}
    return Kind(":".join([name, *(now.get(number, number) for number in numbers)]))


def _label(example: Example, sizes: Sizes) -> str:
    named = example.family.name(sizes)
    return f"{example.label}-{named}" if named else example.label


def _reservations(reference: Reference, left_out: int, profile: Profile) -> list[str]:
    found = []
    if left_out:
        which = f"{left_out} of the reference's examples were not judged"
        found.append(f"{which}: without a GPU a few small ones are")
    if reference.mutates:
        names = ", ".join(reference.mutates)
        found.append(f"arguments that the reference changes in place are not judged: {names}")
    for example in reference.examples if profile == "gpu" else ():
        numbers, timed = example.family.numbers, example.family.timed.items()
        fewer = [
            f"{size} for {numbers[symbol]}"
            for symbol, size in timed
            if numbers.get(symbol, size) != size
        ]
        if fewer and example.own is None:
            most = "which is as much as a GPU has memory for"
            found.append(f"timed at fewer cases ({', '.join(fewer)}), {most}")
            break
    for example in reference.examples if profile == "cpu" else ():
        smaller = []
        for symbol, size in example.family.reduced.items():
            tried = [one[symbol] for one in example.sizes]
            smaller.append(f"{min(tried)} to {max(tried)} for {size}")
        if smaller:
            found.append(f"without a GPU judged at smaller sizes ({', '.join(smaller)})")
            break
    return found
