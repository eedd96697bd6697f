"""Decides whether a size is a batch: each of its indices is an independent case."""

from __future__ import annotations

import torch
from torch import Tensor

from referee.ops.promote import in_float64
from referee.ops.torch_compat import as_tuple, computable
from referee.reference.inputs import Dim, Sizes
from referee.reference.reference import Example, Function

SAME = 1e-9
"""Relative to the largest answer; another order of float64 arithmetic changes less."""


def is_batch(function: Function, example: Example, sizes: Sizes, symbol: str) -> bool:
    """Whether the answers to some indices of this size equal the full answers at these indices."""
    dims = [tensor.dims for tensor in example.family.tensors]
    axes = [[axis for axis, dim in enumerate(each) if dim.symbol == symbol] for each in dims]
    plain = all(dim == Dim(symbol) for each in dims for dim in each if dim.symbol == symbol)
    if not plain or any(len(found) > 1 for found in axes) or not any(axes) or sizes[symbol] < 2:
        return False
    tensors, size = example.tensors(sizes), sizes[symbol]
    exact = in_float64(function)
    # An answer may depend on the index in several ways, so the first, an inner and the last are
    # tried.
    for begin, count in ((0, size - 1), (1, 1), (size - 1, 1)):
        some = [
            one.narrow(found[0], begin, count) if found else one
            for one, found in zip(tensors, axes, strict=True)
        ]
        try:
            whole, part = (
                as_tuple(exact(*(one.clone() for one in given))) for given in (tensors, some)
            )
        except Exception:
            return False
        pairs = zip(whole, part, strict=False)
        same = all(_is_slice(one, other, size, begin, count) for one, other in pairs)
        if len(whole) != len(part) or not same:
            return False
    return True


def _is_slice(whole: Tensor, part: Tensor, size: int, begin: int, count: int) -> bool:
    """Whether `part` equals `whole` at `count` indices from `begin` along one dimension.

    The dimension must be the only one that differs, and have this size.
    """
    if whole.dim() != part.dim():
        return False
    pairs = enumerate(zip(whole.shape, part.shape, strict=True))
    axes = [axis for axis, (one, other) in pairs if one != other]
    if len(axes) != 1 or whole.shape[axes[0]] != size or part.shape[axes[0]] != count:
        return False
    chosen = whole.narrow(axes[0], begin, count)
    if not whole.is_floating_point():
        return torch.equal(chosen, part)
    whole, chosen, part = map(computable, (whole, chosen, part))
    finite = whole.abs().nan_to_num(posinf=0.0, neginf=0.0)
    close = SAME * max(1.0, float(finite.max()) if whole.numel() else 1.0)
    return bool(torch.allclose(chosen, part, rtol=SAME, atol=close, equal_nan=True))
