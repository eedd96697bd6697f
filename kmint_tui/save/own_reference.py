"""A user's own reference: its name in a saved kernel, and the inputs of a verdict by it.

A saved kernel keeps the file's name and the digest of every file that it reads. It does not keep
the path, which means nothing on other machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kmint_tui.errors import UsageError
from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.reference_copy import ReferenceCopy, reference_copy
from referee.ops import Cell
from referee.ops.cells import Profile, contiguous_strides
from referee.reference.family import Family
from referee.reference.inputs import Dim
from referee.verdict import Verdict

if TYPE_CHECKING:
    from referee.reference.asked import Asked
    from referee.reference.reference import Reference

_EXAMPLE = re.compile(r"example\d+-")
_PROFILES: dict[str, Profile] = {"interpret": "cpu", "replay": "gpu"}

Size = int | Dim


@dataclass(frozen=True)
class ReferenceFile:
    """A reference as a saved kernel keeps it: `FILE.py` or `FILE.py:function` without the folder,
    and the digest of its files.
    """

    name: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


@dataclass(frozen=True)
class Number:
    """A number among the arguments: its name, its position, its default, and the judged values."""

    name: str
    position: int
    default: int | float | None
    values: tuple[int | float, ...]


@dataclass(frozen=True)
class Leading:
    """A symbol that stands for any number of leading dimensions, and the outputs that have them
    too.
    """

    symbol: str
    outputs: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class OwnReference:
    """A user's reference, the cells of its examples, and the allowed generalisations.

    The mappings are by the label of an example. `families` has the symbols of sizes; `leading` and
    `broadcast` have further shapes that the reference takes.
    """

    file: ReferenceFile
    cells: Callable[[Profile], Sequence[Cell]]
    families: Mapping[str, Family] = field(default_factory=dict)
    leading: Mapping[str, Leading] = field(default_factory=dict)
    broadcast: Mapping[str, frozenset[str]] = field(default_factory=dict)
    numbers: tuple[Number, ...] = ()
    inputs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    copy: ReferenceCopy | None = None
    """The reference's function, if it needs nothing except torch."""


@dataclass(frozen=True)
class Argument:
    """One judged tensor: its sizes, as numbers or from a symbol, and its dtype."""

    shape: tuple[Size, ...]
    dtype: str


@dataclass(frozen=True)
class Range:
    """The sizes of a symbol: multiples of `multiple` from `least` to `most`; None for no limit."""

    least: int
    most: int | None
    multiple: int = 1


@dataclass(frozen=True)
class Signature:
    """Tensors that were judged together, the ranges of symbols, and the allowed conversions."""

    tensors: tuple[Argument, ...]
    sizes: tuple[tuple[str, Range], ...] = ()
    leading: Leading | None = None
    broadcast: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The reference and inputs of a verdict: the names of all arguments in order, the numbers among
    them, and the tensors' signatures.
    """

    reference: ReferenceFile
    names: tuple[str, ...]
    signatures: tuple[Signature, ...]
    numbers: tuple[Number, ...] = ()
    inputs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors, in order."""
        numbers = {number.name for number in self.numbers}
        return tuple(name for name in self.names if name not in numbers)

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {
            "signatures": [self._listed(signature) for signature in self.signatures],
            "numbers": {number.name: list(number.values) for number in self.numbers},
        }

    def _listed(self, signature: Signature) -> dict[str, Any]:
        tensors = {
            name: {
                "shape": [size if isinstance(size, int) else str(size) for size in one.shape],
                "dtype": one.dtype,
            }
            for name, one in zip(self.tensors, signature.tensors, strict=True)
        }
        sizes = {
            symbol: {"least": one.least, "most": one.most, "multiple": one.multiple}
            for symbol, one in signature.sizes
        }
        return {"tensors": tensors, "sizes": sizes}


def reference_file(reference: Asked) -> ReferenceFile:
    """The reference that the options name. Raises UsageError when it cannot be loaded."""
    from pathlib import Path

    from referee.reference.load import load_reference
    from referee.reference.unusable import UnusableReference

    try:
        loaded = load_reference(reference.located)
    except UnusableReference as error:
        raise UsageError(str(error), title="reference not usable") from error
    name = Path(reference.file).name
    return ReferenceFile(
        f"{name}:{reference.function}" if reference.function else name, loaded.digest
    )


def own_reference(
    reference: Asked, cells: Callable[[Profile], Sequence[Cell]], arguments: Sequence[str]
) -> OwnReference:
    """The parts of a reference that a saved kernel needs. Raises UsageError.

    `arguments` are the names of the kernel's arguments.
    """
    from kmint_tui.save.leading_dimensions import (
        broadcast_operands,
        leading_outputs,
        leading_symbol,
    )
    from referee.reference.load import load_reference

    file = reference_file(reference)
    loaded = load_reference(reference.located)
    leading = {}
    for example in loaded.examples:
        if symbol := leading_symbol(loaded, example):
            leading[example.label] = Leading(symbol, leading_outputs(loaded, example, symbol))
    return OwnReference(
        file=file,
        cells=cells,
        families={
            example.label: example.family
            for example in loaded.examples
            if example.own is None or example.family.reduced
        },
        leading=leading,
        broadcast={
            example.label: broadcast_operands(loaded, example)
            for example in loaded.examples
            if example.own is None
        },
        numbers=_numbers(loaded, arguments),
        copy=reference_copy(loaded, arguments),
        inputs=reference.inputs,
        fixed=reference.fixed,
    )


def _numbers(loaded: Reference, arguments: Sequence[str]) -> tuple[Number, ...]:
    taken = {argument.name: argument for argument in loaded.scalars if argument.name in arguments}
    return tuple(
        Number(name, place, taken[name].default, taken[name].values)
        for place, name in enumerate(arguments)
        if name in taken
    )


def judged_by_own(verdict: Mapping[str, Any] | None) -> bool:
    """True for a verdict (`kmint.verdict/1`) by a user's reference: its cells are that reference's
    examples.
    """
    return any(_EXAMPLE.match(str(cell.get("name"))) for cell in (verdict or {}).get("cells") or ())


def judged(names: tuple[str, ...], own: OwnReference, verdict: Verdict) -> Judged:
    """The domain of the verdict: the inputs of the required cells that passed. Raises NotSaveable.

    A saved kernel takes contiguous tensors, so only examples with contiguous tensors count. Only
    the verdict on the saved form counts, because the examples in the file may have changed since an
    earlier one.
    """
    passed = {
        cell.name for cell in verdict.cells if cell.status == "pass" and cell.role != "capability"
    }
    cells = [cell for cell in own.cells(_PROFILES[verdict.mode]) if cell.name in passed]
    contiguous = [
        cell
        for cell in cells
        if all(spec.strides == contiguous_strides(spec.shape) for spec in cell.inputs)
    ]
    if cells and not contiguous:
        reason = (
            "it was judged with tensors that are not contiguous, and a saved kernel takes "
            "contiguous ones only"
        )
        raise NotSaveable(
            reason,
            fix="make the examples of the reference contiguous, or add such an example, and mint "
            "again",
        )
    if not contiguous:
        raise NotSaveable("its verdict names no example of the reference at which it passed")
    by_example: dict[str, list[Cell]] = {}
    for cell in contiguous:
        by_example.setdefault(cell.name.partition("-")[0], []).append(cell)
    signatures: dict[Signature, None] = {}
    for label, some in by_example.items():
        if label in own.families:
            signatures[_symbolic(own, label, some)] = None
        else:
            exact = (
                tuple(Argument(spec.shape, spec.dtype) for spec in cell.inputs) for cell in some
            )
            signatures.update(dict.fromkeys(map(Signature, exact)))
    return Judged(
        reference=own.file,
        names=names,
        signatures=tuple(signatures),
        numbers=own.numbers,
        inputs=own.inputs,
        fixed=own.fixed,
    )


def _symbolic(own: OwnReference, label: str, cells: Sequence[Cell]) -> Signature:
    """The signature of an example whose sizes have symbols.

    Raises NotSaveable if a fixed size was judged only at other numbers.
    """
    family = own.families[label]
    sizes = [family.sizes_of([spec.shape for spec in cell.inputs]) for cell in cells]
    ranges: dict[str, Range] = {}
    numbers: dict[str, int] = {}
    for symbol in (*family.declared, *family.numbers):
        found = sorted({one[symbol] for one in sizes if symbol in one})
        own_number = family.numbers.get(symbol)
        if symbol in family.batch:
            ranges[symbol] = Range(1, None, family.multiples.get(symbol, 1))
        elif own_number is None:
            ranges[symbol] = Range(found[0], found[-1], family.multiples.get(symbol, 1))
        elif own_number in found:
            numbers[symbol] = own_number
        else:
            reason = (
                f"without a GPU it was judged at sizes of {', '.join(map(str, found))} "
                f"where the reference has {own_number}"
            )
            raise NotSaveable(
                reason,
                fix="judge and save it on a machine with a GPU, or give smaller sizes with --input",
            )

    def written(dim: Dim) -> Size:
        if not dim.symbol:
            return dim.plus
        return numbers[dim.symbol] if dim.symbol in numbers else dim

    specs = zip(family.tensors, cells[0].inputs, strict=True)
    tensors = tuple(
        Argument(tuple(written(dim) for dim in tensor.dims), spec.dtype) for tensor, spec in specs
    )
    return Signature(
        tensors,
        tuple(ranges.items()),
        own.leading.get(label),
        own.broadcast.get(label, frozenset()),
    )
