"""Data races between the programs of one launch, and between the lanes of one, which an interpreter that runs all in turn never shows.

Two programs touch one element, at least one changes it, and neither uses atomics in between: on a GPU either may come first. What
a program wrote may be read by another once the writer has done a releasing atomic operation after the write and the reader an
acquiring one after that on the same value (a ticket, a lock), or others have passed it on in the same way; a relaxed one orders nothing.
Storing the value that is there already is no change.

Which thread holds which lane of a block the compiler decides at every load and store, by item size and alignment of all pointers
near by: the same lane may be another thread. So what a program stored, it may read or change only behind a barrier
(`tl.debug_barrier()`). A single value is stored, and updated by an atomic, by one thread: that thread's stores are in order, and an
ordering atomic is a barrier for them if something reads its result, without which no other thread waits for it. An atomic releases what
other threads stored only behind a barrier.

Nor may a program load or store an element that another one changes by an atomic, or change so what another one stored, but in such order,
and the atomic itself is none; a volatile load may look at what others change. A block of atomics is no different: its own program may
read what it changed, or store over it, only behind a barrier. What a program read, it may change only at the same lane, whose thread has
read it before, or behind a barrier: another thread of the program may not have read it yet. Where the compiler makes a loop's loads turns
ahead (`pipelines`), they see nothing for certain but what was in order before the loop.

Limits: the last two readers of an element are remembered, and the last to change it by an atomic. That atomics of one program follow on
each other is not seen. What one order of atomics puts in order another may not: programs that run one after the other show one order only
(`turns`). Once a reduction, a scan or a product of a block is made, all threads are held to have read what they read before; a compiler
may drop one whose result is not used, and threads of one warp only may make it. A single value that all threads read, and one of them then
changes, is left alone: mostly the others have no use for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.marks import Access, Marks

Array = NDArray[Any]
Times = tuple[int, int]


class Race(Exception):
    """Two programs, or threads of one, use one element without order; the message names them and the argument."""

    kind = "race"


@dataclass
class _Program:
    """One program: what of its own is in order for all its threads, and up to when it knows what other programs did.

    `soon` is known to the thread that does what is done with single values, and to all once they wait for it.
    `waited` and `met` are the phases of the launch in which its threads last waited for each other, and had last read. While it goes
    through a loop whose loads are made ahead, `ahead` is the program as it was before the loop.
    """

    number: int
    settled: Times = (0, 0)
    known: dict[int, Times] = field(default_factory=dict)
    soon: dict[int, Times] = field(default_factory=dict)
    waited: int = 0
    met: int = 0
    ahead: _Program | None = None


class Conflicts:
    """Watches one launch. Programs are numbered from one, in the order in which they begin; they may run in turns.

    Times up to which something is in order are pairs: for what was stored as a single value, and for what was stored in a block. What is
    known after which atomic is kept as vector clocks: every program's time, for each value that atomics changed.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Marks] = {}
        self._now = self._phase = 0
        self._released: dict[int, dict[int, Times]] = {}
        self._programs: dict[int, _Program] = {}
        self._me = _Program(0)

    @property
    def running(self) -> int:
        """The number of the program whose accesses are noted."""
        return self._me.number

    def program(self, number: int) -> None:
        """The next accesses are this program's."""
        if number not in self._programs:
            self._phase += 1
            self._programs[number] = _Program(number, waited=self._phase, met=self._phase)
        self._me = self._programs[number]

    def atomic(self, address: int, *, releases: bool, acquires: bool, awaited: bool = True) -> None:
        """The program did an atomic operation on a single value, of these memory semantics; its threads wait for what that gave."""
        me = self._me
        self._now += 1
        here = (self._now, me.settled[1])
        if acquires:
            me.soon = _later_of(me.soon, self._released.get(address, {}))
        if releases:
            self._released[address] = _later_of(_later_of(self._released.get(address, {}), me.known), me.soon) | {me.number: here}
        if awaited:
            self._wait()
            if releases and acquires:
                me.settled = here

    def _wait(self) -> None:
        if self._me.soon:
            self._me.known, self._me.soon = _later_of(self._me.known, self._me.soon), {}

    def barrier(self) -> None:
        """All threads of the program have come to the same point."""
        self._phase += 1
        self._me.settled = (self._now, self._now)
        self._wait()
        self._me.waited = self._me.met = self._phase

    def meeting(self) -> None:
        """All threads of the program have read what they read until now."""
        self._phase += 1
        self._me.met = self._phase

    def ahead(self) -> bool:
        """Loads of the program are made ahead from now on, until `in_place`; whether they were not already."""
        me = self._me
        if me.ahead is not None:
            return False
        me.ahead = replace(me)
        return True

    def in_place(self) -> None:
        """Loads of the program are made where they stand again."""
        self._me.ahead = None

    def read(self, access: Access, *, volatile: bool = False) -> int | None:
        """Note a read; the number of a program that it races with, if any: its own where threads of the same program race.

        A `volatile` one may look at what atomics of other programs change at any time.
        """
        seen = self._marks(access)
        at, each = seen.elements(access)
        me = self._me
        self._me = me.ahead or me
        other = self._writer(seen, at)
        if other is None and not volatile:
            other = self._changer(seen, at)
        if other is None and self._own(seen, at, one_thread=False):
            other = me.number
        if other is None and (me.ahead or not volatile) and (self._did(seen, at, read_or_not=bool(me.ahead)) or self._updated(seen, at)):
            other = me.number
        self._me = me
        if not volatile:
            seen.note_reader(at, me.number, self._now)
        seen.note_read(at, np.repeat(access.lanes, each), access.shape, me.met)
        return other

    def write(self, access: Access, changes: Array) -> int | None:
        """As `read`, for a write; `changes` says where the value differs from what is there."""
        seen = self._marks(access)
        at, each = seen.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        other = self._writer(seen, changed, alone=access.single)
        if other is None:
            other = self._changer(seen, changed, alone=access.single)
        if other is None and (self._own(seen, changed, one_thread=access.single) or self._updated(seen, changed)):
            other = self._me.number
        if other is None and self._unread(seen, changed, np.repeat(lanes, each), access):
            other = self._me.number
        if other is None:
            other = self._reader(seen, changed, alone=access.single)
        self._now += 1
        seen.writer[at], seen.written[at], seen.block[at] = self._me.number, self._now, not access.single
        seen.last = self._now
        return other

    def update(self, access: Access, changes: Array, *, awaited: bool = True) -> int | None:
        """As `write`, for atomic operations, before `atomic`: the operation itself puts nothing in order that it touches."""
        seen = self._marks(access)
        at, each = seen.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        other = self._writer(seen, changed, alone=access.single)
        if other is None:
            other = self._reader(seen, changed, alone=access.single)
        if self._own(seen, at, one_thread=access.single) or self._unread(seen, changed, np.repeat(lanes, each), access):
            other = self._me.number
        self._now += 1
        seen.changer[changed], seen.changed[changed], seen.changed_block[changed] = self._me.number, self._now, not access.single
        seen.unread[changed] = access.single and not awaited
        seen.last_changed = self._now if changed.size else seen.last_changed
        if not access.single:
            seen.updated[changed] = self._me.waited
            seen.last_updated = max(seen.last_updated, self._me.waited)
        return other

    def _marks(self, access: Access) -> Marks:
        if access.buffer not in self._buffers:
            self._buffers[access.buffer] = Marks(access.size, access.item)
        return self._buffers[access.buffer]

    def _writer(self, seen: Marks, at: Array, *, alone: bool = False) -> int | None:
        """A program that wrote there, in no order with this one, or with its one thread that is `alone` in what it does."""
        return self._foreign(seen.writer[at], seen.written[at], seen.block[at], alone) if seen.last else None

    def _changer(self, seen: Marks, at: Array, *, alone: bool = False) -> int | None:
        """As `_writer`, one that changed something there by an atomic."""
        return self._foreign(seen.changer[at], seen.changed[at], seen.changed_block[at], alone) if seen.last_changed else None

    def _foreign(self, programs: Array, times: Array, blocks: Array, alone: bool) -> int | None:
        foreign = (programs != 0) & (programs != self._me.number)
        for program in np.unique(programs[foreign]).tolist() if foreign.any() else ():
            theirs = programs == program
            if (times[theirs] > np.array(self._known(program, alone))[blocks[theirs]]).any():
                return int(program)
        return None

    def _known(self, program: int, alone: bool) -> Times:
        known = self._me.known.get(program, (0, 0))
        return max(known, self._me.soon.get(program, known)) if alone else known

    def _reader(self, seen: Marks, at: Array, *, alone: bool) -> int | None:
        """A program that read there, in no order with this one."""
        for numbers, times in ((seen.reader[at], seen.seen[at]), (seen.reader_before[at], seen.seen_before[at])):
            foreign = (numbers != 0) & (numbers != self._me.number)
            for reader in np.unique(numbers[foreign]).tolist() if foreign.any() else ():
                if times[numbers == reader].max() >= self._known(reader, alone)[0]:
                    return int(reader)
        return None

    def _own(self, seen: Marks, at: Array, *, one_thread: bool) -> bool:
        """Whether the program wrote there, and its threads have not waited for each other since."""
        if seen.last <= self._me.settled[1]:
            return False
        unsettled = (seen.writer[at] == self._me.number) & (seen.written[at] > np.array(self._me.settled)[seen.block[at]])
        if one_thread:
            unsettled &= seen.block[at] != 0
        return bool(unsettled.any())

    def _did(self, seen: Marks, at: Array, *, read_or_not: bool) -> bool:
        """Whether a thread of the program changed one value there by an atomic that the others do not wait for, or by any."""
        if seen.last_changed <= self._me.settled[0]:
            return False
        mine = seen.changer[at] == self._me.number
        if not read_or_not:
            mine &= seen.unread[at] != 0
        return bool((mine & (seen.changed[at] > self._me.settled[0])).any())

    def _updated(self, seen: Marks, at: Array) -> bool:
        """Whether a block of atomics of the program changed something there, and its threads have not waited since."""
        return seen.last_updated >= self._me.waited and bool((seen.updated[at] == self._me.waited).any())

    def _unread(self, seen: Marks, at: Array, lanes: Array, access: Access) -> bool:
        """Whether a thread of the program may still have to read there."""
        return seen.last_read >= self._me.met and bool(seen.read_elsewhere(at, lanes, access.shape, self._me.met).any())


def _later_of(some: dict[int, Times], others: dict[int, Times]) -> dict[int, Times]:
    """Of every program the later times; a new dictionary."""
    joined = some | others
    for number in some.keys() & others.keys():
        joined[number] = max(some[number], others[number])
    return joined
