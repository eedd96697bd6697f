"""Data races between the programs of one launch, which an interpreter that runs them in turn would never show.

Two programs touch one element, at least one changes it, and neither uses atomics in between: on a GPU either may come first. What
a program wrote may be read by another once the writer has done a releasing atomic operation after the write and the reader an
acquiring one after that (a ticket, a lock); a relaxed one orders nothing. Storing the value that is there already is no change.
Limits: elements are known by their first byte, and one reader an element is remembered besides the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MANY = -1


class Race(Exception):
    """Two programs use one element without order; the message names them and the argument."""


class _Buffer:
    """For every byte of a buffer: the program that wrote there last and when, and the program that read there."""

    def __init__(self, size: int) -> None:
        self.writer, self.written, self.reader = np.zeros(size, np.int32), np.zeros(size, np.int64), np.zeros(size, np.int32)


class Conflicts:
    """Watches one launch. Programs are numbered from one, in the order in which they run."""

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}
        self._now = 0
        self._released: dict[int, int] = {}
        self._acquired: dict[int, int] = {}
        self._program = 0

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

    def read(self, buffer: int, size: int, offsets: Array) -> int | None:
        """Note a read of `buffer` (`size` bytes) at byte `offsets`; the number of a program that it races with, if any."""
        seen = self._at(buffer, size)
        other = self._unordered(seen, offsets)
        readers = seen.reader[offsets]
        seen.reader[offsets] = np.where((readers == 0) | (readers == self._program), self._program, _MANY)
        return other

    def write(self, buffer: int, size: int, offsets: Array, changes: Array) -> int | None:
        """As `read`, for a write; `changes` says where the value differs from what is there."""
        seen = self._at(buffer, size)
        changed = offsets[changes]
        other = self._unordered(seen, changed)
        if other is None and changed.size:
            readers = seen.reader[changed]
            foreign = readers[(readers != 0) & (readers != self._program)]
            known = foreign[foreign != _MANY]
            if foreign.size and self._program not in self._acquired:
                other = int(known[0]) if known.size else 0
        self._now += 1
        seen.writer[offsets], seen.written[offsets] = self._program, self._now
        return other

    def _at(self, buffer: int, size: int) -> _Buffer:
        if buffer not in self._buffers:
            self._buffers[buffer] = _Buffer(size)
        return self._buffers[buffer]

    def _unordered(self, seen: _Buffer, offsets: Array) -> int | None:
        writers = seen.writer[offsets]
        foreign = (writers != 0) & (writers != self._program)
        if not foreign.any():
            return None
        mine = self._acquired.get(self._program, 0)
        for writer in np.unique(writers[foreign]).tolist():
            last = seen.written[offsets[writers == writer]].max()
            if not (self._released.get(writer, 0) > last and mine > last):
                return int(writer)
        return None
