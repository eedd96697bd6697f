"""Derives the outputs of a reference at sizes that are too large for an evaluation.

Each output dimension at small sizes must be a number, or a part or multiple of one size. Otherwise
the function is evaluated on tensors without values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import torch

from referee.ops.cells import contiguous_strides
from referee.ops.spec import Cell, TensorSpec
from referee.ops.torch_compat import as_tuple
from referee.reference.family import Family
from referee.reference.inputs import Dim, Sizes
from referee.reference.layout import output_spec
from referee.reference.reference import Example, Reference
from referee.reference.unusable import UnusableReference, one_line
from referee.reference.user_torch import user_code

EVALUATED_ELEMENTS = 1 << 26
"""Maximum number of input elements at which a reference is evaluated with values."""


def outputs_like(family: Family, cells: Sequence[Cell], sizes: Sizes) -> tuple[TensorSpec, ...]:
    """The outputs at these sizes, derived from the cells; () if they do not determine them."""
    found = []
    for known in _known(family, cells):
        spec = known[0][1]
        dims = [
            _like([(one, out.shape[axis]) for one, out in known], sizes)
            for axis in range(len(spec.shape))
        ]
        contiguous = all(out.strides == contiguous_strides(out.shape) for _, out in known)
        if None in dims or not contiguous:
            return ()
        shape = tuple(int(size) for size in dims if size is not None)
        found.append(replace(spec, shape=shape, strides=contiguous_strides(shape)))
    return tuple(found)


def _like(known: Sequence[tuple[Sizes, int]], sizes: Sizes) -> int | None:
    """The size that follows from the known ones: a share of one symbol's size, or a constant."""
    for symbol in known[0][0]:
        shares = {Fraction(size, one[symbol]) for one, size in known if one[symbol]}
        if len(shares) == 1 and len({one[symbol] for one, _ in known}) > 1:
            size = shares.pop() * sizes[symbol]
            return int(size) if size.denominator == 1 else None
    same = {size for _, size in known}
    return same.pop() if len(same) == 1 else None


def shapes_in_symbols(family: Family, cells: Sequence[Cell]) -> tuple[tuple[str, ...], ...]:
    """The outputs' shapes in symbols: `M`, `2*N`, or a number; `?` if they are not known."""
    return tuple(
        tuple(
            _symbol(family, [(one, out.shape[axis]) for one, out in known])
            for axis in range(len(known[0][1].shape))
        )
        for known in _known(family, cells)
    )


def _known(family: Family, cells: Sequence[Cell]) -> list[list[tuple[Sizes, TensorSpec]]]:
    """For each output, the sizes of every cell and the output there."""
    sizes = [family.sizes_of([spec.shape for spec in cell.inputs]) for cell in cells]
    each = zip(*(cell.outputs for cell in cells), strict=True)
    return [list(zip(sizes, outputs, strict=True)) for outputs in each]


def size_in_symbols(family: Family, dim: Dim) -> str:
    """A size of an input as the user wrote it; fixed ones are numbers."""
    return str(dim.at(family.numbers)) if dim.symbol in family.numbers else str(dim)


def _symbol(family: Family, known: Sequence[tuple[Sizes, int]]) -> str:
    if len({size for _, size in known}) == 1:
        fixed = [symbol for symbol in family.numbers if known[0][0].get(symbol) == known[0][1]]
        return str(family.numbers[fixed[0]] if fixed else known[0][1])
    for symbol in known[0][0]:
        shares = {Fraction(size, one[symbol]) for one, size in known if one[symbol]}
        if len(shares) == 1:
            share = shares.pop()
            return size_in_symbols(family, Dim(symbol, share.numerator, share.denominator))
    return "?"


def output_specs(reference: Reference, example: Example, sizes: Sizes) -> tuple[TensorSpec, ...]:
    """The outputs at these sizes. Raises UnusableReference if they cannot be derived."""
    # The import takes two seconds.
    from torch._subclasses.fake_tensor import FakeTensorMode

    specs = example.specs(reference.tensors, sizes)
    function = reference.at(example.scalars)
    try:
        with user_code(), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = [
                torch.empty_strided(one.shape, one.strides, dtype=getattr(torch, one.dtype))
                for one in specs
            ]
            outputs = function(*tensors)
            del mode
    except Exception as error:
        if sum(prod(spec.shape) for spec in specs) > EVALUATED_ELEMENTS:
            unknown = "the outputs at the timed sizes are not known"
            raise UnusableReference(f"{unknown}: {one_line(error)}; give smaller ones") from error
        tensors = list(example.tensors(sizes))
        with user_code(), torch.no_grad():
            outputs = function(*(tensor.clone() for tensor in tensors))
    named = zip(reference.outputs, as_tuple(outputs), strict=True)
    return tuple(output_spec(name, out, tensors) for name, out in named)
