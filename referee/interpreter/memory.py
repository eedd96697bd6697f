"""Loads, stores and atomics of the interpreter, checked address by address against the plan's
buffers.

Triton's interpreter reads and writes real addresses. A masked-off lane touches nothing. Any other
lane must lie in a buffer of the running plan, else the launch ends with `OutOfBounds`. Its address
must be a multiple of the item size, else the launch ends with `Misaligned`. Two programs or threads
that use an element without order end it with `Race`. A changed input ends it with `InputChanged`;
the judge checks afterwards that inputs are intact. Limits: a wrong index within a buffer stays
unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.interpreter.init_map import InitMap
from referee.interpreter.memory_messages import (
    describe_lost_store,
    describe_misaligned,
    describe_outside,
    describe_race,
)
from referee.interpreter.program_sample import DependsOnSkippedProgram
from referee.interpreter.race_detector import Race, RaceDetector
from referee.interpreter.region import first_periods, load_bits
from referee.interpreter.shadow_memory import Access
from referee.interpreter.violations import (
    InputChanged,
    Misaligned,
    OutOfBounds,
    UninitializedRead,
    Violation,
)

Array = NDArray[Any]


class CheckedMemory:
    """Replaces the interpreter's memory module; all attributes except accesses pass through."""

    def __init__(self, native: Any, program: Callable[[], tuple[int, ...]]) -> None:
        self.native = native
        self._program = program
        self._starts: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._ends: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._names: list[str] = []
        self.races, self._order, self._race = RaceDetector(), list[tuple[int, ...]](), ""
        self._region: Array = np.zeros(0, np.uint8)
        self._init_map: InitMap | None = None
        self._periodic: tuple[tuple[int, int, int], ...] = ()
        self._uninitialized = ""
        self.inputs = self._partly = frozenset[int]()
        self.violation: Violation | None = None
        self.at_atomic: Callable[[int], object] = lambda address: None
        """Called with the first address of an atomic (before, after) or volatile load (before)."""
        self.volatile = self._unread = self.open_lanes = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def start_run(
        self, region: Array, written: InitMap, periodic: Iterable[tuple[int, int, int]] = ()
    ) -> None:
        """Starts a run of several launches in these bytes; `written` is updated on the way.

        `periodic` holds address ranges [start, end) and a period in bytes. Memory holds only the
        first period of the range; all later ones equal it.
        """
        self._region, self._init_map, self._periodic = region, written, tuple(periodic)

    def start_launch(
        self,
        buffers: Mapping[str, tuple[int, int]],
        inputs: Iterable[str] = (),
        partly: Iterable[str] = (),
    ) -> None:
        """Starts a launch that may touch only these address ranges [start, end); the keys name them
        in messages.

        `inputs` are read-only. Skipped programs of an earlier launch may have written the `partly`
        written buffers.
        """
        ranges = sorted((start, end, name) for name, (start, end) in buffers.items())
        self._starts = np.array([start for start, _, _ in ranges], np.uint64)
        self._ends = np.array([end for _, end, _ in ranges], np.uint64)
        self._names = [name for _, _, name in ranges]
        kept = frozenset(inputs)
        self.inputs = frozenset(home for home, name in enumerate(self._names) if name in kept)
        unsure = frozenset(partly)
        self._partly = frozenset(home for home, name in enumerate(self._names) if name in unsure)
        self.races, self._order, self._race, self._uninitialized = RaceDetector(), [], "", ""

    def begin_program(self) -> int:
        """Begins the next program of the launch and returns its number."""
        self._order.append(tuple(self._program()))
        self.races.switch_to(len(self._order))
        return len(self._order)

    def resume(self, number: int) -> None:
        """Continues a program that began earlier."""
        self.races.switch_to(number)

    def end_launch(self) -> None:
        """Ends the launch. Raises Race or UninitializedRead.

        They are raised only now, because an access out of bounds says more about the same mistake.
        """
        if self._race or self._uninitialized:
            # A racing read may come before the write of another program, so the race is the cause.
            self.violation = (
                Race(self._race) if self._race else UninitializedRead(self._uninitialized)
            )
            raise self.violation

    def unread(self, atomic: Callable[[], Any]) -> Any:
        """Runs an atomic whose result is unused."""
        self._unread = True
        try:
            return atomic()
        finally:
            self._unread = False

    def pipelined_turns(self, turns: Iterator[Any], stages: Any) -> Iterator[Any]:
        """Yields a loop's iterations, whose loads may be early; None means the launch's stages."""
        stages = getattr(stages, "value", stages)
        begins = (stages is None or stages > 1) and self.enter_pipelined_loop()
        yield from turns
        if begins:
            self.leave_pipelined_loop()

    def enter_pipelined_loop(self) -> bool:
        """Marks loads as early until `leave_pipelined_loop`; False if they already are."""
        return self.races.enter_pipelined_loop()

    def leave_pipelined_loop(self) -> None:
        """Marks loads of the running program as running in their place again."""
        self.races.leave_pipelined_loop()

    def barrier(self) -> None:
        """The threads of the running program wait for each other."""
        self.races.barrier()

    def reads_complete(self) -> None:
        """The program's threads combine their values, so all earlier reads are complete."""
        self.races.reads_complete()

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Array:
        """As the native load. Raises OutOfBounds or Misaligned before it reads any memory."""
        item = np.dtype(dtype).itemsize
        touched = self._check(pointers, mask, item, "reads")
        volatile, self.volatile = self.volatile, False
        if volatile and touched.size:
            self.at_atomic(int(touched[0]))
        self._check_initialized(touched, item)
        for access, _ in self._accesses(touched, item, mask):
            self._note_race(self.races.read(access, volatile=volatile), access.buffer)
        result: Array = self.native.load(
            first_periods(pointers, self._periodic), mask, other, dtype
        )
        return result

    def store(self, pointers: Array, value: Array, mask: Array) -> Any:
        """As the native store. Raises OutOfBounds, Misaligned or InputChanged before it."""
        item = value.dtype.itemsize
        touched = self._check(pointers, mask, item, "writes")
        if not touched.size:
            return self.native.store(pointers, value, mask)
        bits = f"u{item}"
        given = np.ascontiguousarray(np.asarray(value)[np.asarray(mask).astype(bool)]).view(bits)
        changes = given != load_bits(self.native, first_periods(touched, self._periodic), bits)
        self._reject_input_change(touched, changes)
        for access, lanes in self._accesses(touched, item, mask):
            self._note_race(self.races.write(access, changes[lanes]), access.buffer)
        result = self.native.store(pointers, value, mask)
        self._note_written(touched, item)
        lost = touched[given != load_bits(self.native, touched, bits)]
        for home, _, _ in self._buffers_of(lost):
            name = self._names[home]
            self._race = self._race or describe_lost_store(self._program(), name)
        return result

    def atomic_rmw(
        self, operation: Any, pointers: Array, value: Array, mask: Array, semantics: Any
    ) -> Any:
        """As the native one. Raises OutOfBounds or Misaligned before, InputChanged after it."""
        if operation.name == "XCHG" and value.dtype.kind == "f":
            # The native operation exchanges integers only; memory sees the same bits.
            kind = value.dtype
            return self.atomic_rmw(
                operation,
                pointers,
                np.ascontiguousarray(value).view(f"i{kind.itemsize}"),
                mask,
                semantics,
            ).view(kind)
        touched = self._check(pointers, mask, value.dtype.itemsize, "updates")

        def update() -> Any:
            return self.native.atomic_rmw(
                operation, first_periods(pointers, self._periodic), value, mask, semantics
            )

        if operation.name != "XCHG" or not self._unread:
            self._check_initialized(touched, value.dtype.itemsize)
        return self._update(touched, semantics, value, mask, update)

    def atomic_cas(self, pointers: Array, compare: Array, value: Array, semantics: Any) -> Any:
        """As the native one. Raises OutOfBounds or Misaligned before, InputChanged after it."""
        mask = np.ones_like(pointers, dtype=bool)
        touched = self._check(pointers, mask, value.dtype.itemsize, "updates")
        self._check_initialized(touched, value.dtype.itemsize)

        def swap() -> Any:
            addresses = first_periods(pointers, self._periodic)
            return self.native.atomic_cas(addresses, compare, value, semantics)

        return self._update(touched, semantics, value, mask, swap, compare)

    def _update(
        self,
        touched: Array,
        semantics: Any,
        value: Array,
        mask: Array,
        native: Callable[[], Any],
        compare: Array | None = None,
    ) -> Any:
        if not touched.size:
            return native()
        # Other programs may run before this one continues.
        address, awaited, self._unread = int(touched[0]), not self._unread, False
        self.at_atomic(address)
        item = value.dtype.itemsize
        bits, held = f"u{item}", first_periods(touched, self._periodic)
        before = load_bits(self.native, held, bits)
        result = native()
        self._note_written(touched, item)
        changes = before != load_bits(self.native, held, bits)
        self._reject_input_change(touched, changes)
        for access, lanes in self._accesses(touched, item, mask):
            self._note_race(
                self.races.update(access, changes[lanes], awaited=awaited), access.buffer
            )
        # In a block every thread updates its lanes only, so the atomic orders no thread.
        if value.size == 1:
            both = semantics.name == "ACQUIRE_RELEASE"
            wrote = compare is None or bool((np.asarray(result) == compare).all())
            releases, acquires = (
                wrote and (both or semantics.name == "RELEASE"),
                both or semantics.name == "ACQUIRE",
            )
            self.races.atomic(address, releases=releases, acquires=acquires, awaited=awaited)
        self.at_atomic(address)
        return result

    def _check(self, pointers: Array, mask: Array, itemsize: int, verb: str) -> Array:
        """The touched addresses, after the check that all lie in buffers and are aligned."""
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
                self.violation = OutOfBounds(self._outside(bad, verb))
                raise self.violation
        if itemsize > 1 and int(np.bitwise_or.reduce(touched, axis=None)) % itemsize:
            self.violation = Misaligned(
                self._misaligned(touched[touched % np.uint64(itemsize) != 0], itemsize, verb)
            )
            raise self.violation
        return touched

    def _buffers_of(self, touched: Array) -> Iterator[tuple[int, Array, Array | slice]]:
        """The touched buffers: number, byte offsets, and positions among the addresses."""
        if not touched.size:
            return
        first, last = (
            np.searchsorted(self._starts, [touched.min(), touched.max()], "right") - 1
        ).tolist()
        if first == last:
            yield first, (touched - self._starts[first]).astype(np.int64), slice(None)
            return
        homes = np.searchsorted(self._starts, touched, "right") - 1
        for home in np.unique(homes).tolist():
            lanes = homes == home
            yield home, (touched[lanes] - self._starts[home]).astype(np.int64), lanes

    def _accesses(
        self, touched: Array, item: int, mask: Array
    ) -> Iterator[tuple[Access, Array | slice]]:
        """The accesses to buffers that may change, and their positions among the addresses.

        Inputs cannot race, because nothing may change them.
        """
        for home, offsets, which in self._buffers_of(touched):
            if home not in self.inputs:
                lanes = np.flatnonzero(mask)
                yield (
                    Access(home, self.size(home), item, offsets, lanes[which], np.shape(mask)),
                    which,
                )

    def _reject_input_change(self, touched: Array, changes: Array) -> None:
        changed = touched[changes]
        for home, _, _ in self._buffers_of(changed):
            if home in self.inputs:
                self.violation = InputChanged(
                    f"program {tuple(self._program())} changes the input `{self._names[home]}`"
                )
                raise self.violation

    def _note_race(self, other: int | None, home: int) -> None:
        if other is not None:
            first = None if other == self.races.running else self._order[other - 1]
            self._race = self._race or describe_race(first, self._program(), self._names[home])

    def _check_initialized(self, touched: Array, item: int) -> None:
        if self._init_map is None or (self._uninitialized and not self._partly) or not touched.size:
            return
        for home, offsets, which in self._buffers_of(touched):
            if home in self.inputs:
                continue
            offsets = offsets[self._init_map.uninitialized(touched[which], item)]
            if offsets.size and home in self._partly:
                raise DependsOnSkippedProgram
            if self._uninitialized or not offsets.size:
                continue
            what = "1 element" if offsets.size == 1 else f"{offsets.size} elements"
            self._uninitialized = (
                f"program {tuple(self._program())} reads {what} of `{self._names[home]}` "
                "that nothing has written"
            )

    def _note_written(self, touched: Array, item: int) -> None:
        if self._init_map is not None:
            self._init_map.note(touched, item)

    def uninitialized(self, touched: Array, item: int) -> Array:
        """Marks the items that have an unwritten byte; none of them may be of an input."""
        if self._init_map is None:
            return np.zeros(touched.shape, bool)
        return self._init_map.uninitialized(touched, item)

    def note_stored(self, home: int, at: Array, item: int) -> None:
        """Marks these items of a buffer as written."""
        self._note_written(self._starts[home] + np.uint64(item) * at.astype(np.uint64), item)

    def buffer_of(self, low: int, high: int) -> int | None:
        """The number of the buffer that holds all addresses from `low` up to `high`, or None."""
        home = int(np.searchsorted(self._starts, np.uint64(low), "right")) - 1
        return home if home >= 0 and high <= self._ends[home] else None

    def size(self, home: int) -> int:
        """The size of a buffer in bytes."""
        return int(self._ends[home] - self._starts[home])

    def items(self, home: int, dtype: np.dtype[Any]) -> Array:
        """The content of a buffer as items of this dtype, without a copy."""
        start = int(self._starts[home]) - self._region.ctypes.data
        found: Array = self._region[
            start : start + self.size(home) // dtype.itemsize * dtype.itemsize
        ].view(dtype)
        return found

    def item_indices(self, home: int, touched: Array, item: int) -> Array:
        """The indices of the items of a buffer at these addresses."""
        shift = np.uint64(item.bit_length() - 1)
        found: Array = (
            (first_periods(touched, self._periodic) - self._starts[home]) >> shift
        ).astype(np.int64)
        return found

    def _misaligned(self, bad: Array, itemsize: int, verb: str) -> str:
        name = self._names[int(np.searchsorted(self._starts, bad[0], "right")) - 1]
        return describe_misaligned(self._program(), name, itemsize, verb)

    def _outside(self, bad: Array, verb: str) -> str:
        buffers = list(zip(self._starts.tolist(), self._ends.tolist(), self._names, strict=True))
        return describe_outside(self._program(), buffers, bad, verb)
