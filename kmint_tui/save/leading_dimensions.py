"""Finds further shapes that a reference takes: more leading dimensions, and broadcast operands.

The reference is evaluated in float64 at its least sizes. If several leading dimensions and one
flattened dimension give the same answer, a wrapper may flatten them. If one case of an operand and
its copies give the same answer, the wrapper may expand it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from referee.ops.promote import in_float64
from referee.ops.torch_compat import computable
from referee.reference.inputs import Dim
from referee.reference.reference import Example, Reference
from referee.reference.user_torch import user_code

CLOSE = 1e-9
"""Relative to the largest answer."""


def leading_symbol(reference: Reference, example: Example) -> str:
    """The batch symbol that any number of leading dimensions may replace, or ""."""
    family = example.family
    first = {tensor.dims[0].symbol for tensor in family.tensors if tensor.dims} & family.batch
    for symbol in sorted(first):
        leads = [bool(tensor.dims) and tensor.dims[0] == Dim(symbol) for tensor in family.tensors]
        elsewhere = any(
            dim.symbol == symbol for tensor in family.tensors for dim in tensor.dims[1:]
        )
        if elsewhere or not family.multiples.get(symbol, 1) == 1:
            continue
        sizes = {**family.base, symbol: 6}
        tensors = example.tensors(sizes)
        apart = [
            one.reshape(2, 3, *one.shape[1:]) if leads[number] else one
            for number, one in enumerate(tensors)
        ]
        flat, found = _answers(reference, example, tensors), _answers(reference, example, apart)
        if flat and found and all(map(_same_elements, flat, found)):
            return symbol
    return ""


def leading_outputs(reference: Reference, example: Example, symbol: str) -> tuple[bool, ...]:
    """For each output, whether its first dimension has this symbol's size and follows it."""
    shapes = []
    for size in (4, 6):
        found = _answers(reference, example, example.tensors({**example.family.base, symbol: size}))
        shapes.append([tuple(one.shape) for one in found])
    return tuple(
        bool(few) and few[0] == 4 and many[0] == 6 for few, many in zip(*shapes, strict=True)
    )


def broadcast_operands(reference: Reference, example: Example) -> frozenset[str]:
    """The tensor arguments that may have a single case instead of one for each."""
    family, found = example.family, []
    tensors = example.tensors()
    for number, (name, tensor) in enumerate(zip(reference.tensors, family.tensors, strict=True)):
        axes = [
            axis
            for axis, dim in enumerate(tensor.dims)
            if dim.symbol and tensors[number].shape[axis] > 1
        ]
        others = {
            dim.symbol
            for place, one in enumerate(family.tensors)
            if place != number
            for dim in one.dims
        }
        # An operand that alone has a size determines the number of cases.
        if (
            axes
            and all(tensor.dims[axis].symbol in others for axis in axes)
            and all(_broadcasts(reference, example, tensors, number, axis) for axis in axes)
        ):
            found.append(name)
    return frozenset(found)


def _broadcasts(
    reference: Reference, example: Example, tensors: Sequence[Tensor], number: int, axis: int
) -> bool:
    single = tensors[number].narrow(axis, 0, 1)
    copies = single.expand_as(tensors[number]).contiguous()
    given = (
        [*tensors[:number], single, *tensors[number + 1 :]],
        [*tensors[:number], copies, *tensors[number + 1 :]],
    )
    one, other = (_answers(reference, example, operands) for operands in given)
    return bool(one and other) and all(
        a.shape == b.shape and _same_elements(a, b) for a, b in zip(one, other, strict=True)
    )


def _answers(
    reference: Reference, example: Example, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The answers in float64, or () if the reference refuses the tensors."""
    try:
        with user_code(), torch.no_grad():
            found = in_float64(reference.at(example.scalars))(
                *(tensor.clone() for tensor in tensors)
            )
    except Exception:
        return ()
    return found if isinstance(found, tuple) else (found,)


def _same_elements(one: Tensor, other: Tensor) -> bool:
    one, other = computable(one), computable(other)
    if one.numel() != other.numel():
        return False
    if not one.is_floating_point():
        return torch.equal(one.reshape(-1), other.reshape(-1))
    close = CLOSE * max(
        1.0, float(one.abs().nan_to_num(posinf=0.0, neginf=0.0).max()) if one.numel() else 1.0
    )
    return bool(
        torch.allclose(one.reshape(-1), other.reshape(-1), rtol=CLOSE, atol=close, equal_nan=True)
    )
