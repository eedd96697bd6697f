"""Shadow memory of one buffer: the last writer, readers and lanes of every element during a launch.

An element has the size of the smallest item that touched the buffer. A value that is written as one
type is so recognised when it is read as another. Limits: items lie at multiples of their size;
`memory` checks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_COLUMNS = (
    *("writer", "writer_time", "writer_block", "reader", "reader_time"),
    *("reader_before", "reader_before_time", "atomic_program", "atomic_time", "atomic_block"),
    *("atomic_unread", "atomic_epoch", "read_epoch", "lane", "lanes", "shape_id"),
)
_SEVERAL = 0
"""Stands for the number of lanes when an element was read at more than one lane."""


@dataclass(frozen=True)
class Access:
    """Items of one buffer that a program touches at once.

    `size` is the buffer's size and `item` the item's size, in bytes. `offsets` are byte offsets in
    the buffer. `lanes` are the positions in a block of this `shape`.
    """

    buffer: int
    size: int
    item: int
    offsets: Array
    lanes: Array
    shape: tuple[int, ...]

    @property
    def block(self) -> int:
        """The number of lanes of the block."""
        return prod(self.shape)

    @property
    def single(self) -> bool:
        """Whether it is one value and not a block."""
        return self.block == 1


class ShadowMemory:
    """One array per property of the elements; zero means that nothing happened yet.

    `writer` and `reader` are program numbers, `writer_time` and `reader_time` the times of the
    accesses. `writer_block` says whether a block wrote the element. `reader_before` is the last
    other reader. `atomic_program`, `atomic_time` and `atomic_block` describe the last atomic that
    changed the element; `atomic_unread` marks a single atomic whose result is unused.
    `atomic_epoch` is the epoch of the last block of atomics. `read_epoch` is the epoch of the last
    read, at `lane` of a block of `lanes` lanes whose shape has the number `shape_id`. `last_write`,
    `last_atomic`, `last_atomic_epoch` and `last_read_epoch` are the maxima over the buffer.
    """

    def __init__(self, size: int, item: int) -> None:
        count = -(-size // item)
        self.item = item
        self.writer, self.writer_time, self.writer_block = (
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int8),
        )
        self.reader, self.reader_time = np.zeros(count, np.int32), np.zeros(count, np.int64)
        self.reader_before, self.reader_before_time = (
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
        )
        self.atomic_program, self.atomic_time, self.atomic_block = (
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int8),
        )
        self.atomic_unread = np.zeros(count, np.int8)
        self.atomic_epoch, self.read_epoch = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.lane, self.lanes, self.shape_id = (
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int32),
        )
        self._shape_ids: dict[tuple[int, ...], int] = {}
        self.last_write = self.last_atomic = self.last_atomic_epoch = self.last_read_epoch = 0

    def elements(self, access: Access) -> tuple[Array, int]:
        """The element numbers of an access, and the number of elements per item."""
        if access.item < self.item:
            for column in _COLUMNS:
                setattr(self, column, np.repeat(getattr(self, column), self.item // access.item))
            self.item = access.item
        first, each = access.offsets // self.item, access.item // self.item
        return (first if each == 1 else np.add.outer(first, np.arange(each)).ravel()), each

    def note_reader(self, at: Array, program: int, now: int) -> None:
        """Notes that this program read these elements at this time."""
        last = self.reader[at]
        others = at[(last != program) & (last != 0)]
        if others.size:
            self.reader_before[others], self.reader_before_time[others] = (
                self.reader[others],
                self.reader_time[others],
            )
        self.reader[at], self.reader_time[at] = program, now

    def note_read(self, at: Array, lanes: Array, shape: tuple[int, ...], epoch: int) -> None:
        """Notes that these elements were read at these lanes of a block in this epoch."""
        elsewhere = self.read_elsewhere(at, lanes, shape, epoch)
        self.read_epoch[at], self.lane[at], self.lanes[at], self.shape_id[at] = (
            epoch,
            lanes,
            prod(shape),
            self._shape_id(shape),
        )
        self.last_read_epoch = max(self.last_read_epoch, epoch)
        # A block that reads an element at two lanes leaves the last lane here.
        self.lanes[at[elsewhere | (self.lane[at] != lanes)]] = _SEVERAL

    def read_elsewhere(self, at: Array, lanes: Array, shape: tuple[int, ...], epoch: int) -> Array:
        """Marks the elements that were read in this epoch at other lanes than these.

        Lanes of blocks of different sizes correspond in two cases, because a thread holds a piece
        of either. One block's rows are rows of the other, or both blocks are one-dimensional. All
        threads read a single value, so it has no lane.
        """
        if self.last_read_epoch < epoch:
            return np.zeros(at.shape, bool)
        known, counts, block = self.lane[at], self.lanes[at], prod(shape)
        coarse = np.minimum(counts, block)
        here = ((counts == 1) == (block == 1)) & np.isin(self.shape_id[at], self._alike(shape))
        here &= known * coarse // np.maximum(counts, 1) == lanes * coarse // block
        elsewhere: Array = (self.read_epoch[at] == epoch) & ~(here & (counts != _SEVERAL))
        return elsewhere

    def _shape_id(self, shape: tuple[int, ...]) -> int:
        """A number for a shape without its dimensions of size 1."""
        return self._shape_ids.setdefault(_without_ones(shape), len(self._shape_ids))

    def _alike(self, shape: tuple[int, ...]) -> list[int]:
        """The shape numbers whose lanes correspond to lanes of this shape."""
        mine = _without_ones(shape)
        return [
            number
            for other, number in self._shape_ids.items()
            if max(len(other), len(mine)) < 2 or other[: len(mine)] == mine[: len(other)]
        ]


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
