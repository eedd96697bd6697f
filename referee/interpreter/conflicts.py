"""Data races between the programs of one launch, and between the lanes of one, which an interpreter that runs all in turn never shows.

Two programs touch one element, at least one changes it, and neither uses atomics in between: on a GPU either may come first. What
a program wrote may be read by another once the writer has done a releasing atomic operation after the write and the reader an
acquiring one after that (a ticket, a lock); a relaxed one orders nothing. Storing the value that is there already is no change.

Which thread holds which lane of a block the compiler decides at every load and store, by item size and alignment of all pointers
near by: the same lane may be another thread. So what a program stored, it may read or change only behind a barrier
(`tl.debug_barrier()`). A single value is stored, and updated by an atomic, by one thread: that thread's stores are in order, and an
ordering atomic is a barrier for them. An atomic releases what other threads stored only behind a barrier.

Limits: elements are known by their first byte, and one reader an element is remembered besides the last. That a program changes what
it only read itself is not seen, nor whether the result of an atomic is used, without which threads do not wait for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MANY = -1


class Race(Exception):
    """Two programs, or threads of one, use one element without order; the message names them and the argument."""

    kind = "race"


class _Buffer:
    """For every byte of a buffer: the program that wrote there last, when, and whether in a block, and the program that read there.

    `last` is when anything was written.
    """

    def __init__(self, size: int) -> None:
        self.writer, self.written, self.reader = np.zeros(size, np.int32), np.zeros(size, np.int64), np.zeros(size, np.int32)
        self.block, self.last = np.zeros(size, np.int8), 0


class Conflicts:
    """Watches one launch. Programs are numbered from one, in the order in which they run.

    Times up to which something is in order are pairs: for what was stored as a single value, and for what was stored in a block.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}
        self._now = 0
        self._released: dict[int, tuple[int, int]] = {}
        self._acquired: dict[int, int] = {}
        self._program, self._settled = 0, (0, 0)

    def program(self, number: int) -> None:
        """The next accesses are this program's."""
        self._program = number

    def atomic(self, *, releases: bool, acquires: bool) -> None:
        """The program did an atomic operation on a single value, of these memory semantics."""
        self._now += 1
        here = (self._now, self._settled[1])
        if releases:
            self._released[self._program] = here
        if acquires:
            self._acquired[self._program] = self._now
        if releases and acquires:
            self._settled = here

    def barrier(self) -> None:
        """All threads of the program have come to the same point."""
        self._settled = (self._now, self._now)

    def read(self, buffer: int, size: int, offsets: Array) -> int | None:
        """Note a read of `buffer` (`size` bytes) at byte `offsets`; the number of a program that it races with, if any.

        Its own number where threads of the same program race, and zero where the other is not known.
        """
        seen = self._at(buffer, size)
        other = self._unordered(seen, offsets, one_thread=False)
        readers = seen.reader[offsets]
        seen.reader[offsets] = np.where((readers == 0) | (readers == self._program), self._program, _MANY)
        return other

    def write(self, buffer: int, size: int, offsets: Array, changes: Array, *, block: bool) -> int | None:
        """As `read`, for a write, in a block or of a single value; `changes` says where the value differs from what is there."""
        seen = self._at(buffer, size)
        changed = offsets[changes]
        other = self._unordered(seen, changed, one_thread=not block)
        if other is None and changed.size:
            readers = seen.reader[changed]
            foreign = readers[(readers != 0) & (readers != self._program)]
            known = foreign[foreign != _MANY]
            if foreign.size and self._program not in self._acquired:
                other = int(known[0]) if known.size else 0
        self._now += 1
        seen.writer[offsets], seen.written[offsets], seen.block[offsets] = self._program, self._now, block
        seen.last = self._now
        return other

    def _at(self, buffer: int, size: int) -> _Buffer:
        if buffer not in self._buffers:
            self._buffers[buffer] = _Buffer(size)
        return self._buffers[buffer]

    def _unordered(self, seen: _Buffer, offsets: Array, *, one_thread: bool) -> int | None:
        if not seen.last:
            return None
        writers = seen.writer[offsets]
        foreign = (writers != 0) & (writers != self._program)
        mine = self._acquired.get(self._program, 0)
        for writer in np.unique(writers[foreign]).tolist() if foreign.any() else ():
            theirs = offsets[writers == writer]
            if mine <= seen.written[theirs].max() or _later(seen, theirs, self._released.get(writer, (0, 0))).any():
                return int(writer)
        if seen.last <= self._settled[1]:
            return None
        unsettled = (writers == self._program) & _later(seen, offsets, self._settled)
        if one_thread:
            unsettled &= seen.block[offsets] != 0
        return self._program if unsettled.any() else None


def _later(seen: _Buffer, offsets: Array, times: tuple[int, int]) -> Array:
    """Where something was written after the time that holds for it."""
    later: Array = seen.written[offsets] > np.array(times)[seen.block[offsets]]
    return later
