"""Data races between the programs of one launch, and between the lanes of one, which an interpreter that runs all in turn never shows.

Two programs touch one element, at least one changes it, and neither uses atomics in between: on a GPU either may come first. What
a program wrote may be read by another once the writer has done a releasing atomic operation after the write and the reader an
acquiring one after that (a ticket, a lock); a relaxed one orders nothing. Storing the value that is there already is no change.

Within a program other threads may hold other lanes: what one lane wrote, another may read or change only behind a barrier
(`tl.debug_barrier()`) or an ordering atomic. The same lane of an access of the same shape counts as the same thread.

Limits: elements are known by their first byte, and one reader an element is remembered besides the last. That one lane changes what
another only read is not seen. A single value counts as one lane, though every thread reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MANY = -1


class Race(Exception):
    """Two programs, or lanes of one, use one element without order; the message names them and the argument."""

    kind = "race"


class _Buffer:
    """For every byte of a buffer: the program that wrote there last, when and from which place, and the program that read there.

    `last` is when anything was written.
    """

    def __init__(self, size: int) -> None:
        self.writer, self.written, self.reader = np.zeros(size, np.int32), np.zeros(size, np.int64), np.zeros(size, np.int32)
        self.place, self.last = np.zeros(size, np.int64), 0


class Conflicts:
    """Watches one launch. Programs are numbered from one, in the order in which they run.

    `places` are numbers, equal for the same lane of accesses of the same shape.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}
        self._now = 0
        self._released: dict[int, int] = {}
        self._acquired: dict[int, int] = {}
        self._program = self._barrier = 0

    def program(self, number: int) -> None:
        """The next accesses are this program's."""
        self._program = number

    def atomic(self, *, releases: bool, acquires: bool) -> None:
        """The program did an atomic operation, of these memory semantics."""
        self._now += 1
        if releases:
            self._released[self._program] = self._now
        if acquires:
            self._acquired[self._program] = self._now
        if releases and acquires:
            self._barrier = self._now

    def barrier(self) -> None:
        """All lanes of the program have come to the same point."""
        self._barrier = self._now

    def read(self, buffer: int, size: int, offsets: Array, places: Array) -> int | None:
        """Note a read of `buffer` (`size` bytes) at byte `offsets`; the number of a program that it races with, if any.

        Its own number where it races with another lane of the same program, and zero where the other is not known.
        """
        seen = self._at(buffer, size)
        other = self._unordered(seen, offsets, places)
        readers = seen.reader[offsets]
        seen.reader[offsets] = np.where((readers == 0) | (readers == self._program), self._program, _MANY)
        return other

    def write(self, buffer: int, size: int, offsets: Array, places: Array, changes: Array) -> int | None:
        """As `read`, for a write; `changes` says where the value differs from what is there."""
        seen = self._at(buffer, size)
        changed = offsets[changes]
        other = self._unordered(seen, changed, places[changes])
        if other is None and changed.size:
            readers = seen.reader[changed]
            foreign = readers[(readers != 0) & (readers != self._program)]
            known = foreign[foreign != _MANY]
            if foreign.size and self._program not in self._acquired:
                other = int(known[0]) if known.size else 0
        self._now += 1
        seen.writer[offsets], seen.written[offsets], seen.place[offsets] = self._program, self._now, places
        seen.last = self._now
        return other

    def _at(self, buffer: int, size: int) -> _Buffer:
        if buffer not in self._buffers:
            self._buffers[buffer] = _Buffer(size)
        return self._buffers[buffer]

    def _unordered(self, seen: _Buffer, offsets: Array, places: Array) -> int | None:
        if not seen.last:
            return None
        writers = seen.writer[offsets]
        foreign = (writers != 0) & (writers != self._program)
        mine = self._acquired.get(self._program, 0)
        for writer in np.unique(writers[foreign]).tolist() if foreign.any() else ():
            last = seen.written[offsets[writers == writer]].max()
            if not (self._released.get(writer, 0) > last and mine > last):
                return int(writer)
        return self._program if self._in_other_lanes(seen, offsets, places) else None

    def _in_other_lanes(self, seen: _Buffer, offsets: Array, places: Array) -> bool:
        """Whether this program wrote any of the elements from another place, with no barrier since."""
        if seen.last <= self._barrier:
            return False
        own = (seen.writer[offsets] == self._program) & (seen.written[offsets] > self._barrier)
        return bool((own & (seen.place[offsets] != places)).any())
