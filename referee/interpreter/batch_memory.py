"""Loads and stores of many programs at once, where the order of the programs cannot matter.

Every buffer is either only loaded from, or every element of it is stored at most once. Then no two
programs and no two threads share an element that one of them changes. The race detector has nothing
to watch, and stores can wait until the end. Any other access raises `NotBatchable`: the programs
must then run one after the other, where every access is watched. Invalid accesses, such as an
address outside all buffers, raise it too. Runs in the interpreter worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.memory import CheckedMemory

Array = NDArray[Any]


class NotBatchable(Exception):
    """These programs cannot run at once."""


class BatchMemory:
    """The accesses of a batch of programs, after those that `memory` has seen in the launch."""

    def __init__(self, memory: CheckedMemory) -> None:
        self._memory = memory
        self._loaded: set[int] = set()
        self._stored: dict[int, tuple[int, Array]] = {}
        self._counts: dict[int, int] = {}
        self._waiting: list[tuple[int, Array, Array]] = []

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Array:
        """The elements at `pointers`, one row per program; one shape. Raises NotBatchable."""
        memory, kind = self._memory, np.dtype(dtype)
        touched, everywhere = _lanes(pointers, mask)
        if not touched.size:
            return np.array(other, kind)
        home = self._home(touched, kind.itemsize)
        if home not in memory.inputs:
            if (
                home in self._stored
                or not memory.races.only_read(home)
                or memory.uninitialized(touched, kind.itemsize).any()
            ):
                raise NotBatchable
            self._loaded.add(home)
        items = memory.items(home, kind)[memory.item_indices(home, touched, kind.itemsize)]
        if everywhere:
            return items.reshape(pointers.shape)
        found = np.array(other, kind)
        found[mask] = items
        return found

    def store(self, pointers: Array, value: Array, mask: Array) -> None:
        """Queues a store until `commit`; all arrays have one shape. Raises NotBatchable."""
        touched, everywhere = _lanes(pointers, mask)
        if not touched.size:
            return
        item = value.dtype.itemsize
        home = self._home(touched, item)
        if home in self._memory.inputs or home in self._loaded:
            raise NotBatchable
        at, stored = self._memory.item_indices(home, touched, item), self._stored_once(home, item)
        stored[at] = True
        self._counts[home] += at.size
        if np.count_nonzero(stored) != self._counts[home]:
            raise NotBatchable
        self._waiting.append((home, at, value.reshape(-1) if everywhere else value[mask]))

    def commit(self) -> None:
        """Performs the queued stores."""
        for home, at, value in self._waiting:
            self._memory.items(home, value.dtype)[at] = value
            self._memory.note_stored(home, at, value.dtype.itemsize)

    def _home(self, touched: Array, item: int) -> int:
        """The buffer that holds all items, at multiples of their size. Raises NotBatchable."""
        home = self._memory.buffer_of(int(touched.min()), int(touched.max()) + item)
        if home is None or int(np.bitwise_or.reduce(touched)) % item:
            raise NotBatchable
        return home

    def _stored_once(self, home: int, item: int) -> Array:
        """Marks the stored elements. Raises NotBatchable for a buffer with other accesses."""
        if home not in self._stored:
            found = self._memory.races.only_stored(home, self._memory.size(home), item)
            if found is None:
                raise NotBatchable
            self._stored[home], self._counts[home] = (item, found), int(np.count_nonzero(found))
        size, stored = self._stored[home]
        if size != item:
            raise NotBatchable
        return stored


def _lanes(pointers: Array, mask: Array) -> tuple[Array, bool]:
    """The addresses under the mask (booleans), and whether the mask is true everywhere."""
    everywhere = bool(mask.all())
    return pointers.reshape(-1) if everywhere else pointers[mask], everywhere
