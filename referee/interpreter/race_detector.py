"""Race detector for one launch: finds data races between programs and between threads of one
program.

An interpreter that runs programs one after the other shows no race. Two programs race if they touch
one element, at least one changes it, and no synchronisation orders them. A store of the value
already in memory is no change.

Between programs, a releasing atomic after the write and an acquiring atomic on the same value
before the read order the two. A chain of such pairs orders too (a ticket, a lock). A relaxed atomic
orders nothing.

Between threads of one program:

- The compiler decides at every load and store which thread holds which lane of a block. So a
  program may read or change its own stores only after a barrier (`tl.debug_barrier()`).
- One thread stores a single value, and one thread updates it by an atomic. The stores of that
  thread are in order. An ordering atomic is a barrier for them if the program reads its result;
  otherwise no other thread waits for it.
- An atomic releases the stores of other threads only after a barrier.
- A program may change an element that it read only at the same lane, or after a barrier. Another
  thread of the program may not have read the element yet.
- In a pipelined loop (`pipelines`) loads run iterations ahead. They see for certain only the writes
  that were ordered before the loop.

An atomic does not order the element that it changes. A plain load or store of that element in
another program needs a separate order; a volatile load does not. The program of a block of atomics
may read or overwrite the changed elements only after a barrier.

Limits:

- The detector remembers the last two readers of an element and the last program that changed it by
  an atomic.
- It does not see that atomics of one program follow each other.
- Sequential programs show one order of atomics only; `interleaving` shows others.
- After a reduction, a scan or a product of a block, all threads count as having finished their
  reads. A compiler may drop the operation if its result is unused, and one warp alone may perform
  it.
- A single value that all threads read and one of them then changes is not reported: the other
  threads rarely use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.shadow_memory import Access, ShadowMemory

Array = NDArray[Any]
Times = tuple[int, int]


class Race(Exception):
    """Two programs, or two threads of one, use an element without order; the message names both."""

    kind = "race"


@dataclass
class _Program:
    """The state of one program: the vector clock, and the times up to which its own accesses are
    ordered.

    `ordered_until` holds the times up to which the program's own stores are visible to all its
    threads. `clock` is its vector clock. `pending_acquire` is known to the one thread that handles
    single values, and to all threads once they wait for it. `barrier_epoch` is the epoch of the
    last barrier, `read_epoch` the epoch in which all threads had finished their reads.
    `before_loop` is the state before the pipelined loop that now runs.
    """

    number: int
    ordered_until: Times = (0, 0)
    clock: dict[int, Times] = field(default_factory=dict)
    pending_acquire: dict[int, Times] = field(default_factory=dict)
    barrier_epoch: int = 0
    read_epoch: int = 0
    before_loop: _Program | None = None


class RaceDetector:
    """Watches one launch. Programs are numbered from 1 in the order in which they begin; they may
    interleave.

    A time is a pair: one for stores of single values, one for stores of blocks. A vector clock maps
    a program to its time. Each value that atomics changed has a release clock.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, ShadowMemory] = {}
        self._now = self._epoch = 0
        self._release_clocks: dict[int, dict[int, Times]] = {}
        self._programs: dict[int, _Program] = {}
        self._current = _Program(0)

    @property
    def running(self) -> int:
        """The number of the program whose accesses are noted."""
        return self._current.number

    def switch_to(self, number: int) -> None:
        """Attributes the next accesses to this program."""
        if number not in self._programs:
            self._epoch += 1
            self._programs[number] = _Program(
                number, barrier_epoch=self._epoch, read_epoch=self._epoch
            )
        self._current = self._programs[number]

    def atomic(self, address: int, *, releases: bool, acquires: bool, awaited: bool = True) -> None:
        """Notes an atomic operation on a single value with these memory semantics.

        `awaited` is true if the program reads the result, so that its threads wait for it.
        """
        me = self._current
        self._now += 1
        here = (self._now, me.ordered_until[1])
        if acquires:
            me.pending_acquire = join_clocks(
                me.pending_acquire, self._release_clocks.get(address, {})
            )
        if releases:
            self._release_clocks[address] = join_clocks(
                join_clocks(self._release_clocks.get(address, {}), me.clock), me.pending_acquire
            ) | {me.number: here}
        if awaited:
            self._wait()
            if releases and acquires:
                me.ordered_until = here

    def _wait(self) -> None:
        if self._current.pending_acquire:
            self._current.clock, self._current.pending_acquire = (
                join_clocks(self._current.clock, self._current.pending_acquire),
                {},
            )

    def barrier(self) -> None:
        """Notes that all threads of the program reached one point."""
        self._epoch += 1
        self._current.ordered_until = (self._now, self._now)
        self._wait()
        self._current.barrier_epoch = self._current.read_epoch = self._epoch

    def reads_complete(self) -> None:
        """Notes that all threads of the program have finished their reads so far."""
        self._epoch += 1
        self._current.read_epoch = self._epoch

    def enter_pipelined_loop(self) -> bool:
        """Marks loads as running ahead until `leave_pipelined_loop`; False if they already do."""
        me = self._current
        if me.before_loop is not None:
            return False
        me.before_loop = replace(me)
        return True

    def leave_pipelined_loop(self) -> None:
        """Marks loads as running in their place again."""
        self._current.before_loop = None

    def read(self, access: Access, *, volatile: bool = False) -> int | None:
        """Notes a read. Returns the number of a racing program: its own number for a race between
        its threads.

        A volatile read may see the changes by atomics of other programs at any time.
        """
        shadow = self._shadow(access)
        at, each = shadow.elements(access)
        me = self._current
        self._current = me.before_loop or me
        other = self._unordered_writer(shadow, at)
        if other is None and not volatile:
            other = self._unordered_atomic(shadow, at)
        if other is None and self._own_write(shadow, at, one_thread=False):
            other = me.number
        if (
            other is None
            and (me.before_loop or not volatile)
            and (
                self._own_atomic(shadow, at, any_result=bool(me.before_loop))
                or self._own_atomic_block(shadow, at)
            )
        ):
            other = me.number
        self._current = me
        if not volatile:
            shadow.note_reader(at, me.number, self._now)
        shadow.note_read(at, np.repeat(access.lanes, each), access.shape, me.read_epoch)
        return other

    def write(self, access: Access, changes: Array) -> int | None:
        """Notes a write; `changes` marks the lanes whose value differs from memory."""
        shadow = self._shadow(access)
        at, each = shadow.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        other = self._unordered_writer(shadow, changed, alone=access.single)
        if other is None:
            other = self._unordered_atomic(shadow, changed, alone=access.single)
        if other is None and (
            self._own_write(shadow, changed, one_thread=access.single)
            or self._own_atomic_block(shadow, changed)
        ):
            other = self._current.number
        if other is None and self._own_pending_read(
            shadow, changed, np.repeat(lanes, each), access
        ):
            other = self._current.number
        if other is None:
            other = self._unordered_reader(shadow, changed, alone=access.single)
        self._now += 1
        shadow.writer[at], shadow.writer_time[at], shadow.writer_block[at] = (
            self._current.number,
            self._now,
            not access.single,
        )
        shadow.last_write = self._now
        return other

    def update(self, access: Access, changes: Array, *, awaited: bool = True) -> int | None:
        """Notes an atomic operation, as `write` does. The caller calls `atomic` afterwards: the
        operation does not order the elements that it touches.
        """
        shadow = self._shadow(access)
        at, each = shadow.elements(access)
        lanes = access.lanes[changes]
        changed = at[changes if each == 1 else np.repeat(changes, each)]
        other = self._unordered_writer(shadow, changed, alone=access.single)
        if other is None:
            other = self._unordered_reader(shadow, changed, alone=access.single)
        if self._own_write(shadow, at, one_thread=access.single) or self._own_pending_read(
            shadow, changed, np.repeat(lanes, each), access
        ):
            other = self._current.number
        self._now += 1
        (
            shadow.atomic_program[changed],
            shadow.atomic_time[changed],
            shadow.atomic_block[changed],
        ) = (
            self._current.number,
            self._now,
            not access.single,
        )
        shadow.atomic_unread[changed] = access.single and not awaited
        shadow.last_atomic = self._now if changed.size else shadow.last_atomic
        if not access.single:
            shadow.atomic_epoch[changed] = self._current.barrier_epoch
            shadow.last_atomic_epoch = max(shadow.last_atomic_epoch, self._current.barrier_epoch)
        return other

    def only_read(self, buffer: int) -> bool:
        """Whether no program has changed the buffer."""
        shadow = self._buffers.get(buffer)
        return shadow is None or not (shadow.last_write or shadow.last_atomic)

    def only_stored(self, buffer: int, size: int, item: int) -> Array | None:
        """Marks the stored items of a buffer of `size` bytes; None for other accesses or sizes."""
        shadow = self._buffers.get(buffer)
        if shadow is None:
            return np.zeros(-(-size // item), bool)
        other = shadow.item != item or shadow.last_read_epoch or shadow.last_atomic
        return None if other else np.asarray(shadow.writer != 0)

    def _shadow(self, access: Access) -> ShadowMemory:
        if access.buffer not in self._buffers:
            self._buffers[access.buffer] = ShadowMemory(access.size, access.item)
        return self._buffers[access.buffer]

    def _unordered_writer(
        self, shadow: ShadowMemory, at: Array, *, alone: bool = False
    ) -> int | None:
        """A program that wrote there without order to this one, or its one thread if `alone`."""
        return (
            self._unordered(
                shadow.writer[at], shadow.writer_time[at], shadow.writer_block[at], alone
            )
            if shadow.last_write
            else None
        )

    def _unordered_atomic(
        self, shadow: ShadowMemory, at: Array, *, alone: bool = False
    ) -> int | None:
        """As `_unordered_writer`, for changes by an atomic."""
        return (
            self._unordered(
                shadow.atomic_program[at], shadow.atomic_time[at], shadow.atomic_block[at], alone
            )
            if shadow.last_atomic
            else None
        )

    def _unordered(self, programs: Array, times: Array, blocks: Array, alone: bool) -> int | None:
        foreign = (programs != 0) & (programs != self._current.number)
        for program in np.unique(programs[foreign]).tolist() if foreign.any() else ():
            theirs = programs == program
            if (times[theirs] > np.array(self._clock_of(program, alone))[blocks[theirs]]).any():
                return int(program)
        return None

    def _clock_of(self, program: int, alone: bool) -> Times:
        known = self._current.clock.get(program, (0, 0))
        return max(known, self._current.pending_acquire.get(program, known)) if alone else known

    def _unordered_reader(self, shadow: ShadowMemory, at: Array, *, alone: bool) -> int | None:
        """A program that read there without order to this one."""
        for numbers, times in (
            (shadow.reader[at], shadow.reader_time[at]),
            (shadow.reader_before[at], shadow.reader_before_time[at]),
        ):
            foreign = (numbers != 0) & (numbers != self._current.number)
            for reader in np.unique(numbers[foreign]).tolist() if foreign.any() else ():
                if times[numbers == reader].max() >= self._clock_of(reader, alone)[0]:
                    return int(reader)
        return None

    def _own_write(self, shadow: ShadowMemory, at: Array, *, one_thread: bool) -> bool:
        """Whether the program wrote there and its threads have had no barrier since."""
        if shadow.last_write <= self._current.ordered_until[1]:
            return False
        unsettled = (shadow.writer[at] == self._current.number) & (
            shadow.writer_time[at] > np.array(self._current.ordered_until)[shadow.writer_block[at]]
        )
        if one_thread:
            unsettled &= shadow.writer_block[at] != 0
        return bool(unsettled.any())

    def _own_atomic(self, shadow: ShadowMemory, at: Array, *, any_result: bool) -> bool:
        """Whether one thread changed a value there by an atomic that the other threads do not wait
        for.

        `any_result` includes atomics whose result is read.
        """
        if shadow.last_atomic <= self._current.ordered_until[0]:
            return False
        mine = shadow.atomic_program[at] == self._current.number
        if not any_result:
            mine &= shadow.atomic_unread[at] != 0
        return bool((mine & (shadow.atomic_time[at] > self._current.ordered_until[0])).any())

    def _own_atomic_block(self, shadow: ShadowMemory, at: Array) -> bool:
        """Whether the program's atomics changed an element there since the last barrier."""
        return shadow.last_atomic_epoch >= self._current.barrier_epoch and bool(
            (shadow.atomic_epoch[at] == self._current.barrier_epoch).any()
        )

    def _own_pending_read(
        self, shadow: ShadowMemory, at: Array, lanes: Array, access: Access
    ) -> bool:
        """Whether a thread of the program may still have to read there."""
        return shadow.last_read_epoch >= self._current.read_epoch and bool(
            shadow.read_elsewhere(at, lanes, access.shape, self._current.read_epoch).any()
        )


def join_clocks(some: dict[int, Times], others: dict[int, Times]) -> dict[int, Times]:
    """The later time of every program, as a new dictionary."""
    joined = some | others
    for number in some.keys() & others.keys():
        joined[number] = max(some[number], others[number])
    return joined
