"""The tensors of an example as inputs with sizes, and words for them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from referee.reference.inputs import Dim, Sizes, TensorInput
from referee.reference.layout import spec_of
from referee.reference.reference import Example
from referee.reference.unusable import InputError


def whole_size(name: str, values: Sequence[object]) -> int:
    if (
        len(values) != 1
        or not isinstance(values[0], int)
        or isinstance(values[0], bool)
        or values[0] < 1
    ):
        raise InputError(
            f"--input {name}={'|'.join(map(repr, values))}: {name} is a size, and timed at one whole number"
        )
    return values[0]


def input_of(name: str, tensor: Tensor) -> TensorInput:
    spec = spec_of(name, tensor)
    contiguous = tensor.is_contiguous() or not spec.shape
    dims = tuple(Dim(plus=size) for size in spec.shape)
    return TensorInput(
        dtype=spec.dtype,
        dims=dims,
        strides=None if contiguous else spec.strides,
        offset=spec.offset,
    )


def named_shapes(example: Example, sizes: Sizes) -> str:
    """The shapes of the first tensors, for a message."""
    if example.own is not None and dict(sizes) == dict(example.family.numbers):
        return "its own example"
    return "inputs of shapes " + ", ".join(
        str(list(shape)) for shape in example.family.shapes(sizes)[:4]
    )
