"""Loads, stores and atomics of the interpreter, checked address by address against the plan's buffers.

Triton's interpreter reads and writes real addresses. A masked-out lane touches nothing; any other lane must lie in a
buffer of the running plan, else the launch ends with `OutOfBounds`, and at a multiple of what is read or written there, else it ends with
`Misaligned`. No two programs or threads may use one element without order, else it ends with `Race`. An input may not be changed at
any time, else the launch ends with `InputChanged`; that it is as it was afterwards is for the judge to see. Limits: within a buffer, a
wrong index is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.conflicts import Conflicts, Race
from referee.interpreter.marks import Access
from referee.interpreter.picking import NotRun
from referee.interpreter.written import Written

Array = NDArray[Any]


class OutOfBounds(Exception):
    """A lane reached outside every buffer; the message names program, argument and distance."""

    kind = "out_of_bounds"


class Misaligned(Exception):
    """A lane reached an address that is no multiple of its item's size, which ends the context of a GPU; the message names it."""

    kind = "misaligned"


class InputChanged(Exception):
    """A lane gave an element of an input another value; the message names program and argument."""

    kind = "input_changed"


class Unwritten(Exception):
    """A lane read memory that nothing has written; the message names program and argument."""

    kind = "unwritten"


Violation = OutOfBounds | Misaligned | Race | InputChanged | Unwritten


def install(interpreter: Any, memory: CheckedMemory) -> None:
    """Puts `memory` in the place of the memory of the `triton.runtime.interpreter` module given, once per process."""
    interpreter._interpreter = memory
    builder, semantic = interpreter.InterpreterBuilder, interpreter._ir.MEM_SEMANTIC
    update, swap = builder.create_atomic_rmw, builder.create_atomic_cas
    combine, product = interpreter.ReduceScanOpInterface.apply, builder.create_dot
    load = builder.create_masked_load

    def between_programs(semantics: Any, scope: Any) -> Any:
        return semantic.RELAXED if scope == interpreter._ir.MEM_SYNC_SCOPE.CTA else semantics

    def loaded(self: Any, pointers: Any, mask: Any, other: Any, *given: Any) -> Any:
        memory.volatile = bool(given[-1])
        if other is None and memory.open_lanes:
            other = anything(pointers)
        try:
            return load(self, pointers, mask, other, *given)
        finally:
            memory.volatile = False

    def anything(pointers: Any) -> Any:
        kind = pointers.get_element_ty()
        dtype = np.dtype(interpreter._get_np_dtype(kind))
        # A float of any kind is NaN then.
        bits = np.ones(1, dtype) if dtype == np.bool_ else np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)
        return interpreter.TensorHandle(np.broadcast_to(bits, pointers.data.shape).copy(), kind)

    def combined(self: Any, given: Any) -> Any:
        if any(part.handle.data.size > 1 for part in (given if isinstance(given, tuple) else (given,))):
            memory.meeting()
        return combine(self, given)

    def multiplied(self: Any, *given: Any) -> Any:
        memory.meeting()
        return product(self, *given)

    builder.create_barrier = lambda self: memory.barrier()
    builder.create_masked_load = loaded
    interpreter.ReduceScanOpInterface.apply, builder.create_dot = combined, multiplied
    builder.create_atomic_rmw = lambda self, *given: update(self, *given[:-2], between_programs(*given[-2:]), given[-1])
    builder.create_atomic_cas = lambda self, *given: swap(self, *given[:-2], between_programs(*given[-2:]), given[-1])


class CheckedMemory:
    """Stands in for the interpreter's native memory module; everything but the accesses passes through to it."""

    def __init__(self, native: Any, program: Callable[[], tuple[int, ...]]) -> None:
        self._native = native
        self._program = program
        self._starts: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._ends: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._names: list[str] = []
        self._conflicts, self._order, self._race = Conflicts(), list[tuple[int, ...]](), ""
        self._written: Written | None = None
        self._again: tuple[tuple[int, int, int], ...] = ()
        self._unwritten = ""
        self._inputs = self._partly = frozenset[int]()
        self.violation: Violation | None = None
        self.at_atomic: Callable[[int], object] = lambda address: None
        """Called with the first address of every atomic operation, before and after it is done, and of every volatile load, before."""
        self.volatile = self._unread = self.open_lanes = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def start(self, written: Written, again: Iterable[tuple[int, int, int]] = ()) -> None:
        """A new run, of several launches; `written` is kept up to date.

        `again` has addresses [start, end) and a number of bytes: what lies there comes again and again, and is in memory only once.
        """
        self._written, self._again = written, tuple(again)

    def allow(self, buffers: Mapping[str, tuple[int, int]], inputs: Iterable[str] = (), partly: Iterable[str] = ()) -> None:
        """A new launch: only these address ranges [start, end) may be touched, `inputs` only be read; the keys name them in messages.

        What nothing has written of those that are `partly` written an earlier program would have written that did not run.
        """
        ranges = sorted((start, end, name) for name, (start, end) in buffers.items())
        self._starts = np.array([start for start, _, _ in ranges], np.uint64)
        self._ends = np.array([end for _, end, _ in ranges], np.uint64)
        self._names = [name for _, _, name in ranges]
        kept = frozenset(inputs)
        self._inputs = frozenset(home for home, name in enumerate(self._names) if name in kept)
        unsure = frozenset(partly)
        self._partly = frozenset(home for home, name in enumerate(self._names) if name in unsure)
        self._conflicts, self._order, self._race, self._unwritten = Conflicts(), [], "", ""

    def begin(self) -> int:
        """The next program of the launch runs; its number."""
        self._order.append(tuple(self._program()))
        self._conflicts.program(len(self._order))
        return len(self._order)

    def go_on(self, number: int) -> None:
        """A program runs on that began earlier."""
        self._conflicts.program(number)

    def end(self) -> None:
        """The launch is over; raises Race or Unwritten. Not earlier, because an access out of bounds says more about the same mistake."""
        if self._race or self._unwritten:
            # What another program is to write is unwritten where that one comes later.
            self.violation = Race(self._race) if self._race else Unwritten(self._unwritten)
            raise self.violation

    def unread(self, atomic: Callable[[], Any]) -> Any:
        """Do an atomic whose result nothing reads."""
        self._unread = True
        try:
            return atomic()
        finally:
            self._unread = False

    def ahead(self, turns: Iterator[Any], stages: Any) -> Iterator[Any]:
        """A loop's turns, whose loads the compiler may make ahead in so many stages; None where it has the launch's."""
        stages = getattr(stages, "value", stages)
        begins = (stages is None or stages > 1) and self.early()
        yield from turns
        if begins:
            self.in_place()

    def early(self) -> bool:
        """Loads of the running program are made ahead from now on, until `in_place`; whether they were not already."""
        return self._conflicts.ahead()

    def in_place(self) -> None:
        """Loads of the running program are made where they stand again."""
        self._conflicts.in_place()

    def barrier(self) -> None:
        """The running program's threads wait for each other."""
        self._conflicts.barrier()

    def meeting(self) -> None:
        """The running program's threads make one value of what they hold."""
        self._conflicts.meeting()

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Array:
        """As the native load; raises OutOfBounds or Misaligned before any memory is read."""
        item = np.dtype(dtype).itemsize
        touched = self._check(pointers, mask, item, "reads")
        volatile, self.volatile = self.volatile, False
        if volatile and touched.size:
            self.at_atomic(int(touched[0]))
        self._look_for_unwritten(touched, item)
        for access, _ in self._accesses(touched, item, mask):
            self._unless(self._conflicts.read(access, volatile=volatile), access.buffer)
        result: Array = self._native.load(self._held(pointers), mask, other, dtype)
        return result

    def store(self, pointers: Array, value: Array, mask: Array) -> Any:
        """As the native store; raises OutOfBounds, Misaligned or InputChanged before any memory is written."""
        item = value.dtype.itemsize
        touched = self._check(pointers, mask, item, "writes")
        if not touched.size:
            return self._native.store(pointers, value, mask)
        bits = f"u{item}"
        given = np.ascontiguousarray(np.asarray(value)[np.asarray(mask).astype(bool)]).view(bits)
        changes = given != self._there(self._held(touched), bits)
        self._spare(touched, changes)
        for access, lanes in self._accesses(touched, item, mask):
            self._unless(self._conflicts.write(access, changes[lanes]), access.buffer)
        result = self._native.store(pointers, value, mask)
        self._note_written(touched, item)
        lost = touched[given != self._there(touched, bits)]
        for home, _, _ in self._homes(lost):
            self._note(f"two lanes of program {tuple(self._program())} store different values to one element of `{self._names[home]}`")
        return result

    def atomic_rmw(self, operation: Any, pointers: Array, value: Array, mask: Array, semantics: Any) -> Any:
        """As the native read-modify-write; raises OutOfBounds or Misaligned first, and InputChanged afterwards."""
        if operation.name == "XCHG" and value.dtype.kind == "f":
            # The native one exchanges integers only; to memory it is the same.
            kind = value.dtype
            return self.atomic_rmw(operation, pointers, np.ascontiguousarray(value).view(f"i{kind.itemsize}"), mask, semantics).view(kind)
        touched = self._check(pointers, mask, value.dtype.itemsize, "updates")
        update = lambda: self._native.atomic_rmw(operation, self._held(pointers), value, mask, semantics)  # noqa: E731
        if operation.name != "XCHG" or not self._unread:
            self._look_for_unwritten(touched, value.dtype.itemsize)
        return self._update(touched, semantics, value, mask, update)

    def atomic_cas(self, pointers: Array, compare: Array, value: Array, semantics: Any) -> Any:
        """As the native compare-and-swap; raises OutOfBounds or Misaligned first, and InputChanged afterwards."""
        mask = np.ones_like(pointers, dtype=bool)
        touched = self._check(pointers, mask, value.dtype.itemsize, "updates")
        self._look_for_unwritten(touched, value.dtype.itemsize)
        swap = lambda: self._native.atomic_cas(self._held(pointers), compare, value, semantics)  # noqa: E731
        return self._update(touched, semantics, value, mask, swap, compare)

    def _update(
        self, touched: Array, semantics: Any, value: Array, mask: Array, native: Callable[[], Any], compare: Array | None = None
    ) -> Any:
        if not touched.size:
            return native()
        # Others may run before this one goes on.
        address, awaited, self._unread = int(touched[0]), not self._unread, False
        self.at_atomic(address)
        item = value.dtype.itemsize
        bits, held = f"u{item}", self._held(touched)
        before = self._there(held, bits)
        result = native()
        self._note_written(touched, item)
        changes = before != self._there(held, bits)
        self._spare(touched, changes)
        for access, lanes in self._accesses(touched, item, mask):
            self._unless(self._conflicts.update(access, changes[lanes], awaited=awaited), access.buffer)
        # Of a block every thread updates its own lanes, and no thread is in order with another.
        if value.size == 1:
            both = semantics.name == "ACQUIRE_RELEASE"
            wrote = compare is None or bool((np.asarray(result) == compare).all())
            releases, acquires = wrote and (both or semantics.name == "RELEASE"), both or semantics.name == "ACQUIRE"
            self._conflicts.atomic(address, releases=releases, acquires=acquires, awaited=awaited)
        self.at_atomic(address)
        return result

    def _check(self, pointers: Array, mask: Array, itemsize: int, verb: str) -> Array:
        """The addresses touched, all of them in buffers and aligned."""
        # For block pointers Triton hands over a memory view of the mask.
        touched: Array = pointers[np.asarray(mask).astype(bool)]
        if touched.size == 0:
            return touched
        low, high = touched.min(), touched.max() + np.uint64(itemsize)
        home = int(np.searchsorted(self._starts, low, "right")) - 1
        if home < 0 or high > self._ends[home]:
            homes = np.searchsorted(self._starts, touched, "right").astype(np.int64) - 1
            bad = touched[(homes < 0) | (touched + np.uint64(itemsize) > self._ends[homes])]
            if bad.size:
                self.violation = OutOfBounds(self._describe(bad, itemsize, verb))
                raise self.violation
        if itemsize > 1 and int(np.bitwise_or.reduce(touched, axis=None)) % itemsize:
            self.violation = Misaligned(self._askew(touched[touched % np.uint64(itemsize) != 0], itemsize, verb))
            raise self.violation
        return touched

    def _homes(self, touched: Array) -> Iterator[tuple[int, Array, Array | slice]]:
        """The buffers touched: number, byte offsets within it, and which of the addresses they are."""
        if not touched.size:
            return
        first, last = (np.searchsorted(self._starts, [touched.min(), touched.max()], "right") - 1).tolist()
        if first == last:
            yield first, (touched - self._starts[first]).astype(np.int64), slice(None)
            return
        homes = np.searchsorted(self._starts, touched, "right") - 1
        for home in np.unique(homes).tolist():
            lanes = homes == home
            yield home, (touched[lanes] - self._starts[home]).astype(np.int64), lanes

    def _accesses(self, touched: Array, item: int, mask: Array) -> Iterator[tuple[Access, Array | slice]]:
        """What is touched of the buffers that may change, and which of the addresses it is. Nothing is in conflict about an input."""
        for home, offsets, which in self._homes(touched):
            if home not in self._inputs:
                # For block pointers Triton hands over a memory view of the mask.
                lanes = np.flatnonzero(mask)
                size = int(self._ends[home] - self._starts[home])
                yield Access(home, size, item, offsets, lanes[which], np.shape(mask)), which

    def _held(self, pointers: Array) -> Array:
        """Where in memory that lies which comes again and again."""
        for start, end, every in self._again:
            later = (pointers >= np.uint64(start + every)) & (pointers < np.uint64(end))
            if later.any():
                pointers = np.where(later, (pointers - np.uint64(start)) % np.uint64(every) + np.uint64(start), pointers)
        return pointers

    def _there(self, touched: Array, bits: str) -> Array:
        """What memory holds, as unsigned integers."""
        dtype = np.dtype(bits)
        held: Array = self._native.load(touched, np.ones(touched.shape, bool), np.zeros(touched.shape, dtype), dtype)
        return held

    def _spare(self, touched: Array, changes: Array) -> None:
        changed = touched[changes]
        for home, _, _ in self._homes(changed):
            if home in self._inputs:
                self.violation = InputChanged(f"program {tuple(self._program())} changes the input `{self._names[home]}`")
                raise self.violation

    def _unless(self, other: int | None, home: int) -> None:
        if other is None:
            return
        me, name = tuple(self._program()), self._names[home]
        if other == self._conflicts.running:
            use = f"stores to `{name}` and another thread of it uses the element, before or after"
            self._note(f"program {me} {use}: add tl.debug_barrier() between")
        else:
            helps = "use atomics on it, or add tl.debug_barrier() before a ticket or lock that is waited for"
            self._note(f"programs {self._order[other - 1]} and {me} use the same element of `{name}`, and one changes it: {helps}")

    def _look_for_unwritten(self, touched: Array, item: int) -> None:
        if self._written is None or (self._unwritten and not self._partly) or not touched.size:
            return
        for home, offsets, which in self._homes(touched):
            offsets = offsets[:0] if home in self._inputs else offsets[self._written.missing(touched[which], item)]
            if offsets.size and home in self._partly:
                raise NotRun
            if self._unwritten or not offsets.size:
                continue
            what = "1 element" if offsets.size == 1 else f"{offsets.size} elements"
            self._unwritten = f"program {tuple(self._program())} reads {what} of `{self._names[home]}` that nothing has written"

    def _note_written(self, touched: Array, item: int) -> None:
        if self._written is not None:
            self._written.note(touched, item)

    def _note(self, race: str) -> None:
        self._race = self._race or race

    def _askew(self, bad: Array, itemsize: int, verb: str) -> str:
        name = self._names[int(np.searchsorted(self._starts, bad[0], "right")) - 1]
        what = f"{itemsize} bytes of `{name}` at an address that is no multiple of {itemsize}"
        return f"program {self._program()} {verb} {what}, which a GPU cannot do: use a pointer of the tensor's own type, or aligned offsets"

    def _describe(self, bad: Array, itemsize: int, verb: str) -> str:
        distances = []
        for index, (start, end) in enumerate(zip(self._starts.tolist(), self._ends.tolist(), strict=True)):
            low, high = int(bad.min()), int(bad.max())
            distances.append((abs(low - end) if low >= end else abs(start - high), index, low >= end))
        _, index, after = min(distances) if distances else (0, -1, True)
        where = f"{'past the end' if after else 'before the start'} of `{self._names[index]}`" if index >= 0 else "outside every buffer"
        lanes = "1 element" if bad.size == 1 else f"{bad.size} elements"
        return f"program {self._program()} {verb} {lanes} {where}"
