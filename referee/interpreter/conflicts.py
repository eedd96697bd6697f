"""Data races between the programs of one launch, and between the lanes of one, which an interpreter that runs all in turn never shows.

Two programs touch one element, at least one changes it, and neither uses atomics in between: on a GPU either may come first. What
a program wrote may be read by another once the writer has done a releasing atomic operation after the write and the reader an
acquiring one after that (a ticket, a lock); a relaxed one orders nothing. Storing the value that is there already is no change.

Which thread holds which lane of a block the compiler decides at every load and store, by item size and alignment of all pointers
near by: the same lane may be another thread. So what a program stored, it may read or change only behind a barrier
(`tl.debug_barrier()`). A single value is stored, and updated by an atomic, by one thread: that thread's stores are in order, and an
ordering atomic is a barrier for them. An atomic releases what other threads stored only behind a barrier.

A block of atomics is no different: its own program may read what it changed, or store over it, only behind a barrier. What a
program read, it may change only at the same lane, whose thread has read it before, or behind a barrier: another thread of the program
may not have read it yet.

Limits: one reader an element is remembered besides the last. Whether the result of an atomic is used is not seen, without which
threads do not wait for it, nor that atomics of one program follow on each other. Once a reduction, a scan or a product of a block is
made, all threads are held to have read what they read before; a compiler may drop one whose result is not used, and threads of
one warp only may make it. A single value that all threads read, and one of them then changes, is left alone: mostly the others have no
use for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.marks import Access, Marks

Array = NDArray[Any]

_MANY = -1


class Race(Exception):
    """Two programs, or threads of one, use one element without order; the message names them and the argument."""

    kind = "race"


class Conflicts:
    """Watches one launch. Programs are numbered from one, in the order in which they run.

    Times up to which something is in order are pairs: for what was stored as a single value, and for what was stored in a block.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Marks] = {}
        self._now = 0
        self._released: dict[int, tuple[int, int]] = {}
        self._acquired: dict[int, int] = {}
        self._program, self._settled = 0, (0, 0)
        # Phases of one program: up to which its threads wait for each other, and up to which they have read.
        self._waited, self._met = 0, 0

    def program(self, number: int) -> None:
        """The next accesses are this program's."""
        self._program = number
        self._waited += 1
        self._met += 1

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
        self._waited += 1
        self._met += 1

    def meeting(self) -> None:
        """All threads of the program have read what they read until now."""
        self._met += 1

    def read(self, access: Access) -> int | None:
        """Note a read; the number of a program that it races with, if any.

        Its own number where threads of the same program race, and zero where the other is not known.
        """
        seen = self._marks(access)
        at, each = seen.elements(access)
        other = self._foreign(seen, at)
        if other is None and (self._own(seen, at, one_thread=False) or self._updated(seen, at)):
            other = self._program
        readers = seen.reader[at]
        seen.reader[at] = np.where((readers == 0) | (readers == self._program), self._program, _MANY)
        seen.note_read(at, np.repeat(access.lanes, each), access.block, self._met)
        return other

    def write(self, access: Access, changes: Array) -> int | None:
        """As `read`, for a write; `changes` says where the value differs from what is there."""
        seen = self._marks(access)
        at, each = seen.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        other = self._foreign(seen, changed)
        if other is None and (self._own(seen, changed, one_thread=access.single) or self._updated(seen, changed)):
            other = self._program
        if other is None and self._unread(seen, changed, np.repeat(lanes, each), access):
            other = self._program
        if other is None and changed.size:
            readers = seen.reader[changed]
            foreign = readers[(readers != 0) & (readers != self._program)]
            known = foreign[foreign != _MANY]
            if foreign.size and self._program not in self._acquired:
                other = int(known[0]) if known.size else 0
        self._now += 1
        seen.writer[at], seen.written[at], seen.block[at] = self._program, self._now, not access.single
        seen.last = self._now
        return other

    def update(self, access: Access, changes: Array) -> bool:
        """Note atomic operations; whether threads of the program race. No race with another program comes of an atomic."""
        seen = self._marks(access)
        at, each = seen.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        races = self._own(seen, at, one_thread=access.single) or self._unread(seen, changed, np.repeat(lanes, each), access)
        if not access.single:
            seen.updated[changed] = seen.last_updated = self._waited
        return races

    def _marks(self, access: Access) -> Marks:
        if access.buffer not in self._buffers:
            self._buffers[access.buffer] = Marks(access.size, access.item)
        return self._buffers[access.buffer]

    def _foreign(self, seen: Marks, at: Array) -> int | None:
        """A program that wrote there, in no order with this one."""
        if not seen.last:
            return None
        writers = seen.writer[at]
        foreign = (writers != 0) & (writers != self._program)
        mine = self._acquired.get(self._program, 0)
        for writer in np.unique(writers[foreign]).tolist() if foreign.any() else ():
            theirs = at[writers == writer]
            if mine <= seen.written[theirs].max() or _later(seen, theirs, self._released.get(writer, (0, 0))).any():
                return int(writer)
        return None

    def _own(self, seen: Marks, at: Array, *, one_thread: bool) -> bool:
        """Whether the program wrote there, and its threads have not waited for each other since."""
        if seen.last <= self._settled[1]:
            return False
        unsettled = (seen.writer[at] == self._program) & _later(seen, at, self._settled)
        if one_thread:
            unsettled &= seen.block[at] != 0
        return bool(unsettled.any())

    def _updated(self, seen: Marks, at: Array) -> bool:
        """Whether a block of atomics of the program changed something there, and its threads have not waited since."""
        return seen.last_updated == self._waited and bool((seen.updated[at] == self._waited).any())

    def _unread(self, seen: Marks, at: Array, lanes: Array, access: Access) -> bool:
        """Whether a thread of the program may still have to read there."""
        return seen.last_read == self._met and bool(seen.read_elsewhere(at, lanes, access.block, self._met).any())


def _later(seen: Marks, offsets: Array, times: tuple[int, int]) -> Array:
    """Where something was written after the time that holds for it."""
    later: Array = seen.written[offsets] > np.array(times)[seen.block[offsets]]
    return later
