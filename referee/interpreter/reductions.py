"""`tl.reduce` and `tl.associative_scan` as trees of calls to their combiner, on whole arrays at
once.

The layout of a compiled kernel decides the tree. Triton requires that a reduction's combiner is
associative and commutative, and that a scan's is associative. So there are two trees of each here,
and a combiner must be right in both. The compiler passes two numbers to a combiner. Here many pairs
at once are passed as numbers too; where the combiner branches, the pairs split (`_Parted`). Where it
reads a block made of such a number, it runs once for each pair (`_Unread`).
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
Combine = Callable[[list[Array], list[Array]], list[Array]]

_PLAIN = {"_sum_combine": np.add, "_elementwise_max": np.fmax, "_elementwise_min": np.fmin}
"""Functions equivalent to Triton's combiners of two float32 numbers."""

IN_A_ROW = 8
"""Number of elements (a power of two) that one thread combines in sequence.

A thread usually holds more; a combiner rarely associates this many by chance.
"""


class _Parted(BaseException):
    """A combiner branches on a condition that holds for some pairs only.

    It derives from BaseException so that no `except Exception` on the way catches it.
    """

    def __init__(self, where: Array) -> None:
        self.where = where


class _BlockRead(BaseException):
    """A combiner reads a block that is made of the numbers of many pairs."""


class _Unread(np.ndarray):
    """A block that a combiner makes of a number, for many pairs at once.

    Usually the combiner only reads its dtype, as in `(x + tl.zeros((1,), tl.int1)).dtype`. The
    elements mean nothing: calculations of whole arrays give the same kind, and any other use raises
    _BlockRead.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        if named:
            raise _BlockRead
        return _unread(getattr(ufunc, method)(*map(_plain_array, inputs)))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if kwargs or any(isinstance(value, (list, tuple)) for value in args):
            raise _BlockRead
        return _unread(func(*map(_plain_array, args)))

    def __getitem__(self, _: Any) -> Any:
        raise _BlockRead

    def __bool__(self) -> bool:
        raise _BlockRead

    def item(self, *_: Any) -> Any:
        raise _BlockRead


def _plain_array(value: Any) -> Any:
    return np.zeros(value.shape, value.dtype) if isinstance(value, _Unread) else value


def _unread(found: Any) -> Any:
    if not isinstance(found, np.ndarray) or not found.ndim:
        raise _BlockRead
    return found.view(_Unread)


def patch(builder: Any) -> None:
    """Lets a combiner branch on many pairs and make blocks of their numbers.

    `builder` is the class of Triton's interpreter. Call it once per process, after Triton's own
    patches.
    """
    truth, splat = tl.tensor.__bool__, builder.create_splat

    def made(self: Any, kind: Any, number: Any) -> Any:
        if number.data.size == 1:
            return splat(self, kind, number)
        return type(number)(np.zeros(kind.shape, number.data.dtype).view(_Unread), number.dtype)

    builder.create_splat = made

    def wanted(tensor: Any) -> bool:
        # Only operands of a combiner, and values computed from them, are a number for the compiler
        # and an array here.
        if tensor.type.is_block() or (data := tensor.handle.data).size == 1:
            return bool(truth(tensor))
        where = data != 0
        if where.all() or not where.any():
            return bool(where[0])
        raise _Parted(where)

    tl.tensor.__bool__ = wanted


def _combiner(operation: Any, tensors: tuple[Any, ...]) -> Combine:
    """A function that combines arrays of left parts with arrays of right parts, element by
    element.
    """
    if plain := _plain(operation, tensors):
        return lambda left, right: [plain(left[0], right[0])]

    def combine(left: list[Array], right: list[Array]) -> list[Array]:
        pairs = [array.reshape(-1) for array in (*left, *right)]
        return [part.reshape(left[0].shape) for part in _of_pairs(operation, pairs, tensors * 2)]

    return combine


def _of_pairs(operation: Any, pairs: list[Array], like: tuple[Any, ...]) -> list[Array]:
    """The combiner's results for many pairs; the combiner sees numbers, as in the compiler."""
    given = [
        tl.tensor(type(one.handle)(array, one.dtype), one.dtype)
        for array, one in zip(pairs, like, strict=True)
    ]
    try:
        merged = operation.combine_fn.fn(*given)
    except _Parted as parted:
        where = parted.where
        some, others = (
            _of_pairs(operation, [array[which] for array in pairs], like)
            for which in (where, ~where)
        )
        found = [np.empty(where.shape, part.dtype) for part in some]
        for whole, part, other in zip(found, some, others, strict=True):
            whole[where], whole[~where] = part, other
        return found
    except _BlockRead:
        return _one_by_one(operation, pairs, like)
    parts = merged if isinstance(merged, tuple) else (merged,)
    if any(isinstance(part.handle.data, _Unread) for part in parts):
        return _one_by_one(operation, pairs, like)
    return [np.broadcast_to(part.handle.data.reshape(-1), pairs[0].shape) for part in parts]


def _one_by_one(operation: Any, pairs: list[Array], like: tuple[Any, ...]) -> list[Array]:
    single = ([array[place : place + 1] for array in pairs] for place in range(pairs[0].size))
    found = [_of_pairs(operation, pair, like) for pair in single]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _plain(operation: Any, tensors: tuple[Any, ...]) -> Callable[[Array, Array], Array] | None:
    """An equivalent function of whole arrays, if there is one."""
    if len(tensors) == 1 and tensors[0].dtype == tl.float32:
        for name, plain in _PLAIN.items():
            if operation.combine_fn is getattr(tl.standard, name):
                return plain
    return None


@functools.cache
def _other_places(count: int) -> NDArray[np.int64]:
    """An order of the elements. Its distances are no powers of two, unlike those of halving."""
    return default_rng(count).permutation(count)[::-1]


def apply(operation: Any, tensors: tuple[Any, ...], mixed: bool) -> list[Any]:
    """The results of Triton's reduction or scan as tensors; `mixed` picks the second tree."""
    found = combined(operation, tensors, mixed)
    return [
        operation.to_tensor(array, tensor.dtype)
        for array, tensor in zip(found, tensors, strict=True)
    ]


def combined(
    operation: Any, tensors: tuple[Any, ...], mixed: bool, *, leading: int = 0
) -> list[Array]:
    """The same results as arrays. The first `leading` axes belong to no tensor and stay
    separate.
    """
    scan = hasattr(operation, "reverse")
    return (
        _scanned(operation, tensors, mixed, leading)
        if scan
        else _reduced(operation, tensors, mixed, leading)
    )


def _reduced(operation: Any, tensors: tuple[Any, ...], mixed: bool, leading: int) -> list[Array]:
    """Combines one half with the other until one element is left.

    If `mixed`, elements first change places, and IN_A_ROW elements combine in sequence, as a thread
    combines its elements.
    """
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    rank = arrays[0].ndim - leading
    axis = leading + (0 if operation.axis is None else operation.axis % rank)
    if operation.axis is None:
        arrays = [array.reshape(*array.shape[:leading], -1) for array in arrays]
    combine = _combiner(operation, tensors)
    if mixed:
        arrays = _in_rows(
            combine,
            [np.take(array, _other_places(array.shape[axis]), axis) for array in arrays],
            axis,
        )
    before = (slice(None),) * axis
    while (length := arrays[0].shape[axis]) > 1:
        left, right = (*before, slice(length // 2)), (*before, slice(length // 2, None))
        arrays = combine([array[left] for array in arrays], [array[right] for array in arrays])
    if not operation.keep_dims:
        return [np.squeeze(array, axis) for array in arrays]
    if operation.axis is None:
        return [array.reshape((*array.shape[:leading], *(1,) * rank)) for array in arrays]
    return arrays


def _in_rows(combine: Combine, arrays: list[Array], axis: int) -> list[Array]:
    row = min(IN_A_ROW, arrays[0].shape[axis])
    first, *rest = zip(*(np.split(array, row, axis) for array in arrays), strict=True)
    found = list(first)
    for one in rest:
        found = combine(found, list(one))
    return found


def _scanned(operation: Any, tensors: tuple[Any, ...], mixed: bool, leading: int) -> list[Array]:
    """Combines each element with those before it, over growing distances.

    The distance doubles; if `mixed` it is the sum of the last two distances, so that no combined
    length is a power of two.
    """
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    axis = leading + operation.axis % (arrays[0].ndim - leading)
    if operation.reverse:
        arrays = [np.flip(array, axis) for array in arrays]
    length = arrays[0].shape[axis]
    position = np.arange(length).reshape(
        [-1 if dim == axis else 1 for dim in range(arrays[0].ndim)]
    )
    combine = _combiner(operation, tensors)
    # `last` and `long` hold, for each element, the combination of this many elements up to it.
    last, distance, long, reach = arrays, 1, arrays, 1
    while reach < length:
        earlier = [np.roll(array, distance, axis) for array in long]
        merged = combine(earlier, last)
        merged = [
            np.where(position < distance, old, new) for old, new in zip(last, merged, strict=True)
        ]
        if mixed:
            last, distance, long, reach = long, reach, merged, distance + reach
        else:
            last, distance, long, reach = merged, 2 * reach, merged, 2 * reach
    return [np.flip(array, axis) for array in long] if operation.reverse else long
