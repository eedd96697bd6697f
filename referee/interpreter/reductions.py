"""`tl.reduce` and `tl.associative_scan` as trees of calls to their combiner, of whole arrays at once.

In which tree a compiled kernel combines is its layout's affair. Triton relies on it that a reduction's combiner is associative and
commutative, and that a scan's is associative; so here there are two trees of each, and a combiner must be right in both.
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


def _combined(operation: Any, left: list[Array], right: list[Array], tensors: tuple[Any, ...]) -> list[Array]:
    if plain := _plain(operation, tensors):
        return [plain(left[0], right[0])]
    merged = operation.combine_fn.fn(*_tensors(operation, left, tensors), *_tensors(operation, right, tensors))
    return [np.reshape(part.handle.data, left[0].shape) for part in (merged if isinstance(merged, tuple) else (merged,))]


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
    """One half is combined with the other until one element is left; if `mixed`, after the elements have changed their places."""
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    rank = arrays[0].ndim
    axis = 0 if operation.axis is None else operation.axis % rank
    if operation.axis is None:
        arrays = [array.reshape(-1) for array in arrays]
    if mixed:
        arrays = [np.take(array, _other_places(array.shape[axis]), axis) for array in arrays]
    before = (slice(None),) * axis
    while (length := arrays[0].shape[axis]) > 1:
        left, right = (*before, slice(length // 2)), (*before, slice(length // 2, None))
        arrays = _combined(operation, [array[left] for array in arrays], [array[right] for array in arrays], tensors)
    if not operation.keep_dims:
        arrays = [np.squeeze(array, axis) for array in arrays]
    elif operation.axis is None:
        arrays = [array.reshape((1,) * rank) for array in arrays]
    return _tensors(operation, arrays, tensors)


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
