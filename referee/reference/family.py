"""The family of sizes at which one set of inputs is judged.

Every size except 1 has a symbol: the user's, or one for a fixed number. Trials show which numbers
the reference takes. They give the least sizes (odd if possible), the batch sizes, and sizes around
them: powers of two, a single row, many rows, wide rows.

A fixed size keeps its number, unless the tensors are then too large for Triton's interpreter. Then
batches become smaller first, then the largest other sizes; `reduced` names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from referee.reference.inputs import Dim, Sizes, TensorInput

LEAST_FIXED = 2


@dataclass(frozen=True)
class Family:
    """The sizes of one set of inputs.

    `numbers` are the fixed sizes by symbol and `declared` the user's symbols. `base` are the least
    sizes, `around` other small ones, and `timed` those of the timed cell. A symbol's size is a
    multiple of its number in `multiples`.
    """

    tensors: tuple[TensorInput, ...]
    numbers: Sizes
    declared: tuple[str, ...]
    base: Sizes = field(default_factory=dict)
    around: tuple[Sizes, ...] = ()
    timed: Sizes = field(default_factory=dict)
    batch: frozenset[str] = frozenset()
    multiples: Sizes = field(default_factory=dict)

    @property
    def reduced(self) -> dict[str, int]:
        """The fixed sizes, by symbol, that are smaller in `base`."""
        return {
            symbol: number
            for symbol, number in self.numbers.items()
            if self.base.get(symbol, number) != number
        }

    def shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        """The shapes of all tensors."""
        return [tensor.shape(sizes) for tensor in self.tensors]

    def elements(self, sizes: Sizes) -> int:
        """Number of elements of the largest tensor."""
        return max((prod(shape) for shape in self.shapes(sizes)), default=0)

    def at(self, sizes: Sizes) -> tuple[TensorInput, ...]:
        """The inputs with numbers for their sizes.

        At other sizes than the fixed ones, layouts keep only the order of their dimensions.
        """
        return tuple(_numbered(tensor, sizes, self.numbers) for tensor in self.tensors)

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The number of every symbol for tensors of these shapes."""
        found: dict[str, int] = {}
        for tensor, shape in zip(self.tensors, shapes, strict=True):
            for dim, size in zip(tensor.dims, shape, strict=True):
                if dim.symbol:
                    found[dim.symbol] = (size - dim.plus) * dim.over // dim.times
        return found

    def name(self, sizes: Sizes) -> str:
        """The sizes that differ from the fixed ones, for a cell's name."""
        shown = {
            symbol: size
            for symbol, size in sizes.items()
            if symbol in self.declared or self.numbers.get(symbol) != size
        }
        return ",".join(f"{symbol}={size}" for symbol, size in shown.items())


def symbolic(tensors: Sequence[TensorInput], *, apart: bool) -> Family:
    """The family of these tensors, without sizes.

    Equal fixed sizes share a symbol. With `apart`, the first size of a tensor that has it twice
    gets its own, in all tensors.
    """
    leading = {
        tensor.dims[0].plus
        for tensor in tensors
        if apart and any(dim == tensor.dims[0] for dim in tensor.dims[1:])
    }
    numbers: dict[str, int] = {}

    def named(dim: Dim, first: bool) -> Dim:
        if dim.symbol or dim.plus < LEAST_FIXED:
            return dim
        symbol = f"first{dim.plus}" if first and dim.plus in leading else f"size{dim.plus}"
        numbers[symbol] = dim.plus
        return Dim(symbol)

    made = tuple(
        replace(
            tensor,
            dims=tuple(
                named(dim, number == 0 and len(tensor.dims) > 1)
                for number, dim in enumerate(tensor.dims)
            ),
        )
        for tensor in tensors
    )
    return Family(
        made,
        numbers,
        tuple(dict.fromkeys(symbol for tensor in tensors for symbol in tensor.symbols)),
    )


def _numbered(tensor: TensorInput, sizes: Sizes, numbers: Sizes) -> TensorInput:
    """The tensor with numbers for its sizes, and strides in the same order as before."""
    dims = tuple(Dim(plus=dim.at(sizes)) for dim in tensor.dims)
    values = replace(
        tensor.values,
        low=_valued(tensor.values.low, sizes),
        high=_valued(tensor.values.high, sizes),
    )
    own = all(sizes[dim.symbol] == numbers.get(dim.symbol) for dim in tensor.dims if dim.symbol)
    if tensor.strides is None or own:
        return replace(tensor, dims=dims, values=values)
    return replace(
        tensor,
        dims=dims,
        values=values,
        strides=_dense([dim.plus for dim in dims], tensor.strides),
        offset=tensor.offset,
    )


def _valued(bound: Dim | float | None, sizes: Sizes) -> Dim | float | None:
    return bound.at(sizes) if isinstance(bound, Dim) else bound


def _dense(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    strides = [0] * len(shape)
    step = 1
    for axis in sorted(range(len(shape)), key=lambda axis: (like[axis], -axis)):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
