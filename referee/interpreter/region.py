"""The shared memory in the worker: views of a plan as NumPy arrays, filled and copied as torch
does.

Imports no torch, because loading torch takes longer than running a kernel's programs. A bfloat16 is
16 bits here, and an 8-bit float 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.formats import converted, stored_as
from referee.plans.arena import Layout
from referee.plans.dtypes import integer_range
from referee.plans.plan import View

Array = NDArray[Any]


def array(region: Array, places: Layout, view: View, dtype: np.dtype[Any] | None = None) -> Array:
    """The elements of a view of `region` (the bytes of a run), without a copy.

    `dtype` may replace the view's dtype by one of the same size. Raises ValueError if the view
    leaves the region.
    """
    kind = stored_as(view.dtype) if dtype is None else dtype
    strides = tuple(stride * kind.itemsize for stride in view.strides)
    start = places.slots[view.buffer].start + view.offset
    return np.ndarray(view.shape, kind, region.data, start, strides)


def fill(target: Array, value: float, dtype: str) -> None:
    """Sets every element to a value of torch's `dtype`."""
    if integer_range(dtype) is None:
        target[...] = converted(np.array(value, np.float64), "float64", dtype)
    else:
        # A float cannot hold the largest integers.
        target[...] = int(value)


def copy(source: View, target: View, region: Array, places: Layout) -> None:
    """Copies elements; shapes broadcast, and dtypes convert."""
    array(region, places, target)[...] = converted(
        array(region, places, source), source.dtype, target.dtype
    )


def first_periods(pointers: Array, periodic: Iterable[tuple[int, int, int]]) -> Array:
    """The addresses, with those in a periodic range mapped to its first period.

    `periodic` lists (first address, end address, period in bytes).
    """
    for start, end, period in periodic:
        later = (pointers >= np.uint64(start + period)) & (pointers < np.uint64(end))
        if later.any():
            first = (pointers - np.uint64(start)) % np.uint64(period) + np.uint64(start)
            pointers = np.where(later, first, pointers)
    return pointers


def load_bits(native: Any, addresses: Array, dtype: str) -> Array:
    """The memory's content at these addresses as unsigned integers; `native` loads it."""
    lanes, zeros = np.ones(addresses.shape, bool), np.zeros(addresses.shape, dtype)
    found: Array = native.load(addresses, lanes, zeros, np.dtype(dtype))
    return found
