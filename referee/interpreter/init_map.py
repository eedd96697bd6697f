"""Init map: the bytes of a run's memory that a kernel or the plan has written.

A kernel that reads other bytes reads uninitialized memory. Inputs are initialized from the start,
with the gaps between their elements, and are not tracked. A write that comes too late in another
order of programs is a race (`race_detector`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.region import array
from referee.plans.arena import Layout
from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import View

Array = NDArray[Any]

_ALL = -1


class InitMap:
    """The init map of one run. `base` is its memory's address, a multiple of every item size."""

    def __init__(self, places: Layout, base: int) -> None:
        self._places, self._base = places, base
        # The operating system commits no memory for zeros that stay unwritten.
        self._bytes = np.zeros(places.total, np.uint8)

    def fill(self, target: View) -> None:
        """Marks every element of a view as written."""
        self._elements(target)[...] = _ALL

    def copy(self, source: View, target: View) -> None:
        """Marks the elements of `target` as written where those of `source` are, broadcast."""
        if self._places.slots[source.buffer].input is not None:
            self.fill(target)
        else:
            self._elements(target)[...] = np.where(self._elements(source) == _ALL, _ALL, 0)

    def note(self, addresses: Array, item: int) -> None:
        """Marks items of this many bytes at these addresses as written."""
        self._items(item)[self._at(addresses, item)] = _ALL

    def uninitialized(self, addresses: Array, item: int) -> Array:
        """Marks the items that have an unwritten byte; none of them may be of an input."""
        found: Array = self._items(item)[self._at(addresses, item)] != _ALL
        return found

    def _items(self, item: int) -> Array:
        return self._bytes.view(f"i{item}")

    def _at(self, addresses: Array, item: int) -> Array:
        return (addresses.astype(np.int64) - self._base) // item

    def _elements(self, view: View) -> Array:
        return array(self._bytes, self._places, view, np.dtype(f"i{ITEMSIZE[view.dtype]}"))
