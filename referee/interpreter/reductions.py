"""`tl.reduce` and `tl.associative_scan` as trees of calls to their combiner, of whole arrays at once.

In which tree a compiled kernel combines is its layout's affair. Triton relies on it that a reduction's combiner is associative and
commutative, and that a scan's is associative; so here there are two trees of each, and a combiner must be right in both. The compiler gives
a combiner two numbers: so many pairs at once are given as numbers too, and where it branches they part (`_Parted`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.random import default_rng
from numpy.typing import NDArray

Array = NDArray[Any]

_PLAIN = {"_sum_combine": np.add, "_elementwise_max": np.fmax, "_elementwise_min": np.fmin}
"""What Triton's own combiners make of two numbers in float32."""

IN_A_ROW = 8
"""Elements, a power of two, as every number of elements is: few for a thread, and more than associate by chance."""


class _Parted(BaseException):
    """A combiner asks of many pairs at once what is true of some of them. No `except Exception` on the way may keep it."""

    def __init__(self, where: Array) -> None:
        self.where = where


def patch() -> None:
    """Has what a combiner asks of many pairs be asked of each. Once per process, after Triton's own patches of a tensor's truth."""
    truth = tl.tensor.__bool__

    def asked(tensor: Any) -> bool:
        # A number for the compiler, and many here: nothing but what a combiner is given, or has made of it, is both.
        if tensor.type.is_block() or (data := tensor.handle.data).size == 1:
            return bool(truth(tensor))
        where = data != 0
        if where.all() or not where.any():
            return bool(where[0])
        raise _Parted(where)

    tl.tensor.__bool__ = asked


def _combined(operation: Any, left: list[Array], right: list[Array], tensors: tuple[Any, ...]) -> list[Array]:
    if plain := _plain(operation, tensors):
        return [plain(left[0], right[0])]
    pairs = [array.reshape(-1) for array in (*left, *right)]
    return [part.reshape(left[0].shape) for part in _of_pairs(operation, pairs, tensors * 2)]


def _of_pairs(operation: Any, pairs: list[Array], like: tuple[Any, ...]) -> list[Array]:
    """What the combiner makes of so many pairs. To it they are one, and numbers, as they are to the compiler."""
    given = [tl.tensor(type(one.handle)(array, one.dtype), one.dtype) for array, one in zip(pairs, like, strict=True)]
    try:
        merged = operation.combine_fn.fn(*given)
    except _Parted as parted:
        where = parted.where
        some, others = (_of_pairs(operation, [array[which] for array in pairs], like) for which in (where, ~where))
        found = [np.empty(where.shape, part.dtype) for part in some]
        for whole, part, other in zip(found, some, others, strict=True):
            whole[where], whole[~where] = part, other
        return found
    parts = merged if isinstance(merged, tuple) else (merged,)
    return [np.broadcast_to(part.handle.data.reshape(-1), pairs[0].shape) for part in parts]


def _plain(operation: Any, tensors: tuple[Any, ...]) -> Callable[[Array, Array], Array] | None:
    """What does the same as the combiner, of whole arrays, if there is such a thing."""
    if len(tensors) == 1 and tensors[0].dtype == tl.float32:
        for name, plain in _PLAIN.items():
            if operation.combine_fn is getattr(tl.standard, name):
                return plain
    return None


def _tensors(operation: Any, arrays: list[Array], tensors: tuple[Any, ...]) -> list[Any]:
    return [operation.to_tensor(array, tensor.dtype) for array, tensor in zip(arrays, tensors, strict=True)]


@functools.cache
def _other_places(count: int) -> NDArray[np.int64]:
    """An order of so many elements. Any will do whose distances are no powers of two, as those between the halves of halves are."""
    return default_rng(count).permutation(count)[::-1]


def reduced(operation: Any, tensors: tuple[Any, ...], mixed: bool) -> list[Any]:
    """One half is combined with the other until one element is left; if `mixed`, after the elements have changed their places, and
    so many as IN_A_ROW were combined one after the other, as a thread combines those that it holds.
    """
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    rank = arrays[0].ndim
    axis = 0 if operation.axis is None else operation.axis % rank
    if operation.axis is None:
        arrays = [array.reshape(-1) for array in arrays]
    if mixed:
        arrays = _in_rows(operation, [np.take(array, _other_places(array.shape[axis]), axis) for array in arrays], axis, tensors)
    before = (slice(None),) * axis
    while (length := arrays[0].shape[axis]) > 1:
        left, right = (*before, slice(length // 2)), (*before, slice(length // 2, None))
        arrays = _combined(operation, [array[left] for array in arrays], [array[right] for array in arrays], tensors)
    if not operation.keep_dims:
        arrays = [np.squeeze(array, axis) for array in arrays]
    elif operation.axis is None:
        arrays = [array.reshape((1,) * rank) for array in arrays]
    return _tensors(operation, arrays, tensors)


def _in_rows(operation: Any, arrays: list[Array], axis: int, tensors: tuple[Any, ...]) -> list[Array]:
    row = min(IN_A_ROW, arrays[0].shape[axis])
    first, *rest = zip(*(np.split(array, row, axis) for array in arrays), strict=True)
    found = list(first)
    for one in rest:
        found = _combined(operation, found, list(one), tensors)
    return found


def scanned(operation: Any, tensors: tuple[Any, ...], mixed: bool) -> list[Any]:
    """Of each element with those before it: at first one, then more and more of them, twice as many, or if `mixed` as many as
    the last two times together, so that what is combined has no length of a power of two.
    """
    axis = operation.axis
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    if operation.reverse:
        arrays = [np.flip(array, axis) for array in arrays]
    length = arrays[0].shape[axis]
    position = np.arange(length).reshape([-1 if dim == axis % arrays[0].ndim else 1 for dim in range(arrays[0].ndim)])
    # What `last` and `long` hold of an element combines so many elements up to it.
    last, distance, long, reach = arrays, 1, arrays, 1
    while reach < length:
        earlier = [np.roll(array, distance, axis) for array in long]
        merged = _combined(operation, earlier, last, tensors)
        merged = [np.where(position < distance, old, new) for old, new in zip(last, merged, strict=True)]
        if mixed:
            last, distance, long, reach = long, reach, merged, distance + reach
        else:
            last, distance, long, reach = merged, 2 * reach, merged, 2 * reach
    if operation.reverse:
        long = [np.flip(array, axis) for array in long]
    return _tensors(operation, long, tensors)
