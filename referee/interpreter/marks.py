"""What is remembered of every element of one buffer while a launch runs: who wrote it last, who read it, and at which lane.

An element is as many bytes as the smallest item that touched the buffer, so that what was written as one type is known when it is read
as another. Limits: items lie at multiples of their size, which the memory sees to.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_COLUMNS = (
    *("writer", "written", "block", "reader", "seen", "reader_before", "seen_before"),
    *("changer", "changed", "changed_block", "unread", "updated", "read", "lane", "lanes", "form"),
)
# In place of how many lanes a block had: the element was read at more than one.
_SEVERAL = 0


@dataclass(frozen=True)
class Access:
    """Items of one buffer that a program touches at once, at byte `offsets`; `lanes` are their positions in a block of this `shape`."""

    buffer: int
    size: int
    item: int
    offsets: Array
    lanes: Array
    shape: tuple[int, ...]

    @property
    def block(self) -> int:
        """How many lanes the block has."""
        return prod(self.shape)

    @property
    def single(self) -> bool:
        """Whether it is one value, not a block."""
        return self.block == 1


class Marks:
    """One column for each thing that is remembered of the elements; zero is for nothing yet.

    `writer` and `reader` are programs, `written` and `seen` the times at which they were there, and `reader_before` is the last other one
    that read; `block` says whether it was written in a block; `changer`, `changed` and `changed_block` are the same of the last atomic
    that changed the element, and `unread` whether it was one value of which nothing was read; `updated` is a phase of the launch, in which
    a block of atomics changed the element; `read` is one in which it was read, at `lane` of a block of `lanes`, whose shape has the number
    `form`. `last`, `last_changed`, `last_updated` and `last_read` are the same of the whole buffer.
    """

    def __init__(self, size: int, item: int) -> None:
        count = -(-size // item)
        self.item = item
        self.writer, self.written, self.block = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int8)
        self.reader, self.seen = np.zeros(count, np.int32), np.zeros(count, np.int64)
        self.reader_before, self.seen_before = np.zeros(count, np.int32), np.zeros(count, np.int64)
        self.changer, self.changed, self.changed_block = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int8)
        self.unread = np.zeros(count, np.int8)
        self.updated, self.read = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.lane, self.lanes, self.form = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int32)
        self._forms: dict[tuple[int, ...], int] = {}
        self.last = self.last_changed = self.last_updated = self.last_read = 0

    def elements(self, access: Access) -> tuple[Array, int]:
        """The elements' numbers, so many for each item touched."""
        if access.item < self.item:
            for column in _COLUMNS:
                setattr(self, column, np.repeat(getattr(self, column), self.item // access.item))
            self.item = access.item
        first, each = access.offsets // self.item, access.item // self.item
        return (first if each == 1 else np.add.outer(first, np.arange(each)).ravel()), each

    def note_reader(self, at: Array, program: int, now: int) -> None:
        """This program read these elements at this time."""
        last = self.reader[at]
        others = at[(last != program) & (last != 0)]
        if others.size:
            self.reader_before[others], self.seen_before[others] = self.reader[others], self.seen[others]
        self.reader[at], self.seen[at] = program, now

    def note_read(self, at: Array, lanes: Array, shape: tuple[int, ...], phase: int) -> None:
        """These elements were read at these lanes of a block, in this phase."""
        elsewhere = self.read_elsewhere(at, lanes, shape, phase)
        self.read[at], self.lane[at], self.lanes[at], self.form[at] = phase, lanes, prod(shape), self._form(shape)
        self.last_read = max(self.last_read, phase)
        # Where one block reads an element at two lanes, the last is what is noted.
        self.lanes[at[elsewhere | (self.lane[at] != lanes)]] = _SEVERAL

    def read_elsewhere(self, at: Array, lanes: Array, shape: tuple[int, ...], phase: int) -> Array:
        """Which of these elements were read in this phase at another place than these lanes of a block.

        Blocks of different sizes are laid over one another, as threads hold them, where one is a row of what the other is a row of, or
        both are of numbers: a thread has a piece of either. A single value is read by all threads, and is nobody's place.
        """
        if self.last_read < phase:
            return np.zeros(at.shape, bool)
        known, counts, block = self.lane[at], self.lanes[at], prod(shape)
        coarse = np.minimum(counts, block)
        here = ((counts == 1) == (block == 1)) & np.isin(self.form[at], self._alike(shape))
        here &= known * coarse // np.maximum(counts, 1) == lanes * coarse // block
        elsewhere: Array = (self.read[at] == phase) & ~(here & (counts != _SEVERAL))
        return elsewhere

    def _form(self, shape: tuple[int, ...]) -> int:
        """A number for a shape, but for dimensions of one."""
        return self._forms.setdefault(_without_ones(shape), len(self._forms))

    def _alike(self, shape: tuple[int, ...]) -> list[int]:
        """The forms whose lanes are laid over those of this one."""
        mine = _without_ones(shape)
        return [number for form, number in self._forms.items() if max(len(form), len(mine)) < 2 or form[: len(mine)] == mine[: len(form)]]


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
