"""Which bytes of a run's memory something has written. A kernel that reads others reads what happened to be there before.

Inputs are there from the start, with what lies between their elements, and nothing is noted of them. Where a run's order of programs is
one of several, what is written too late in another is a race (`conflicts`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from referee.plans.arena import Layout, window
from referee.plans.plan import View

Array = NDArray[Any]

_ALL, _INTEGERS = -1, {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Written:
    """The memory of one run, from `base` on, whose address is a multiple of every item's size."""

    def __init__(self, places: Layout, base: int) -> None:
        self._places, self._base = places, base
        # Numpy's zeros take no memory where nobody writes.
        self._marks = torch.from_numpy(np.zeros(places.total, np.uint8))

    def fill(self, target: View) -> None:
        """Every element of a view is written."""
        self._seen(target).fill_(_ALL)

    def copy(self, source: View, target: View) -> None:
        """The elements of a view are written, so far as those that they come from are; shapes broadcast."""
        if self._places.slots[source.buffer].input is not None:
            self.fill(target)
        else:
            self._seen(target).copy_((self._seen(source) == _ALL).to(torch.int8).neg_())

    def note(self, addresses: Array, item: int) -> None:
        """Items of so many bytes are written at these addresses."""
        self._items(item)[self._at(addresses, item)] = _ALL

    def missing(self, addresses: Array, item: int) -> Array:
        """Which of these items, none of an input, have a byte that nothing has written."""
        found: Array = self._items(item)[self._at(addresses, item)] != _ALL
        return found

    def _items(self, item: int) -> Array:
        return self._marks.numpy().view(f"i{item}")

    def _at(self, addresses: Array, item: int) -> Array:
        return (addresses.astype(np.int64) - self._base) // item

    def _seen(self, view: View) -> Tensor:
        marks = window(self._marks, self._places, view)
        return marks.view(_INTEGERS[marks.element_size()])
