"""The memory of a plan: one region, with guard bands around every buffer, filled with a pattern
beforehand.

`layout` is plain arithmetic without torch. The other functions work on a one-dimensional uint8
tensor on any device; the CPU path and the GPU replay share them. A fill pattern is NaN (or huge) in
every floating type at once, so the bands need no dtype. Limits: an access further than
`GUARD_BYTES` from every buffer stays unseen.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from referee.plans.plan import LaunchPlan, View

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ALIGNMENT = 256
"""Bytes to which every buffer is aligned, as CUDA's allocations."""
GUARD_BYTES = 1 << 16
"""Minimum number of bytes between buffers."""
PIECE_BYTES = 1 << 26
"""Bytes per comparison, which bound the memory of a check."""
LARGE_BYTES = 1 << 20
"""Bytes from which an input that fills its buffer is written without a fill pattern first."""


@dataclass(frozen=True)
class FillPattern:
    """A two-byte pattern that fills guard bands and unwritten memory."""

    name: str
    pattern: bytes


# 0xffff is NaN in float64, float32, float16 and bfloat16, and -1 in integers. 0x7b7b is 61280 in
# float16 and about 1e36 in bfloat16 and float32. It survives where a NaN disappears, as in
# maximum(NaN, x).
NAN = FillPattern("nan", b"\xff\xff")
HUGE = FillPattern("huge", b"\x7b\x7b")
# Zero, and a value below all others: -65376 in float16, about -3e36 in bfloat16 and float32.
ZERO = FillPattern("zero", b"\x00\x00")
NEGATIVE = FillPattern("negative", b"\xfb\xfb")
# An ordinary value, as an earlier call might leave: 1.06 in float16, 0.011 in bfloat16 and float32.
ORDINARY = FillPattern("ordinary", b"\x3c\x3c")
FILL_PATTERNS = (NAN, HUGE, ZERO, NEGATIVE, ORDINARY)

LEFT_BEHIND = (
    "wrong in memory that an earlier call left behind: the kernel reads its output or "
    "scratch memory before it writes it"
)


@dataclass(frozen=True)
class Slot:
    """The place of one buffer: byte offset in the region, size in bytes, and its input."""

    start: int
    nbytes: int
    input: int | None

    @property
    def end(self) -> int:
        """The first byte after the buffer."""
        return self.start + self.nbytes


@dataclass(frozen=True)
class Layout:
    """Slots by buffer index, the byte ranges between them, and the size of the region in bytes."""

    slots: tuple[Slot, ...]
    guards: tuple[tuple[int, int], ...]
    total: int

    def within(self, start: int, size: int) -> Layout:
        """The same layout, `start` bytes into a region of `size` bytes.

        The bytes before and after it become guard bands.
        """
        slots = tuple(Slot(slot.start + start, slot.nbytes, slot.input) for slot in self.slots)
        inner = [end + start for _, end in self.guards[:-1]]
        ends = [low + start for low, _ in self.guards[1:]]
        return Layout(slots, tuple(zip([0, *ends], [*inner, size], strict=True)), size)


@dataclass(frozen=True)
class Damage:
    """A run's change to a guard band or an input.

    `buffer` is the changed input, or the buffer nearest to the changed band. `offset` is the first
    changed byte, counted from the buffer's start; `count` is the number of changed bytes.
    """

    kind: Literal["guard", "input"]
    buffer: int
    offset: int
    count: int


def second_fill_pattern(cell: str) -> FillPattern:
    """The pattern of the second run of the test case `cell`: any but NaN, in turn."""
    return FILL_PATTERNS[1:][zlib.crc32(cell.encode()) % len(FILL_PATTERNS[1:])]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def layout(
    plan: LaunchPlan, *, reverse: bool = False, lead: int = 0, guard: int = GUARD_BYTES
) -> Layout:
    """Places every buffer of `plan`; `reverse` places them in the opposite order.

    The bands between them have at least `guard` bytes, and `lead` more before each buffer, so that
    offsets that wrap around still hit a band.
    """
    order = range(len(plan.buffers))
    slots: dict[int, Slot] = {}
    guards = []
    end = 0
    for index in reversed(order) if reverse else order:
        buffer = plan.buffers[index]
        start = _aligned(end + guard + lead)
        guards.append((end, start))
        slots[index] = Slot(start, buffer.nbytes, buffer.input)
        end = start + buffer.nbytes
    total = _aligned(end + guard)
    guards.append((end, total))
    return Layout(tuple(slots[index] for index in order), tuple(guards), total)


def window(region: Tensor, places: Layout, view: View) -> Tensor:
    """The tensor of `view`, aliasing `region` of any dtype.

    Raises ValueError if the view is misaligned or leaves its buffer.
    """
    slot = places.slots[view.buffer]
    dtype, end = _reach(view)
    if end is None or end > slot.nbytes:
        raise ValueError(f"view {view} does not fit buffer {view.buffer} of {slot.nbytes} bytes")
    start = region.storage_offset() * region.itemsize + slot.start + view.offset
    typed = region if region.dtype == dtype else region.view(dtype)
    return typed.as_strided(view.shape, view.strides, start // dtype.itemsize)


@functools.lru_cache(maxsize=1024)
def _reach(view: View) -> tuple[torch.dtype, int | None]:
    """A view's dtype and its end in bytes; None if it is misaligned or begins too early."""
    import torch

    dtype: torch.dtype = getattr(torch, view.dtype)
    if view.offset < 0 or view.offset % dtype.itemsize or min(view.strides, default=0) < 0:
        return dtype, None
    if not all(view.shape):
        return dtype, view.offset
    last = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return dtype, view.offset + (1 + last) * dtype.itemsize


def _poisoned(start: int, length: int, poison: FillPattern, like: Tensor) -> Tensor:
    import torch

    pattern = int.from_bytes(poison.pattern, "little", signed=True)
    words = torch.full((length // 2 + 1,), pattern, dtype=torch.int16, device=like.device)
    return words.view(torch.uint8)[start % 2 :][:length]


def prepare(
    region: Tensor,
    places: Layout,
    plan: LaunchPlan,
    inputs: Sequence[Tensor | None],
    poison: FillPattern,
    targets: Sequence[Tensor] | None = None,
) -> None:
    """Fills `region` (`places.total` bytes) with the pattern, then writes `inputs` in the plan's
    order.

    None stands for an input that the caller writes; if it is large, from end to end, and its memory
    may stay as it was. `targets` are the inputs' windows, if the caller has them.
    """
    import torch

    pattern = int.from_bytes(poison.pattern, "little", signed=True)
    targets = targets or [window(region, places, view) for view in plan.inputs]
    # A large input that fills its buffer needs no pattern first; this saves a third of the device's
    # work.
    slots = [places.slots[view.buffer] for view in plan.inputs]
    whole = sorted(
        (slot.start, slot.end)
        for slot, target in zip(slots, targets, strict=True)
        if _fills(target, slot)
    )
    low, words = 0, region.view(torch.int16)
    for start, end in (*whole, (places.total, places.total)):
        assert not start % 2, start
        words[low // 2 : start // 2].fill_(pattern)
        low = end - end % 2
    for target, tensor in zip(targets, inputs, strict=True):
        if tensor is not None:
            target.copy_(tensor)


def _fills(target: Tensor, slot: Slot) -> bool:
    """Whether a write to a large `target` replaces every byte of its slot."""
    return (
        target.is_contiguous()
        and target.numel() * target.element_size() == slot.nbytes >= LARGE_BYTES
    )


def damage(
    region: Tensor, places: Layout, plan: LaunchPlan, inputs: Sequence[Tensor], poison: FillPattern
) -> Damage | None:
    """The first sign of a write outside of scratch and outputs in `region`, or None."""
    for low, high in places.guards:
        found = _differences(
            region,
            low,
            high,
            lambda piece: _poisoned(piece.start, piece.stop - piece.start, poison, region),
        )
        if found:
            offset, count = found
            nearest = min(
                range(len(places.slots)), key=lambda index: _distance(places.slots[index], offset)
            )
            return Damage("guard", nearest, offset - places.slots[nearest].start, count)
    for view, tensor in zip(plan.inputs, inputs, strict=True):
        slot = places.slots[view.buffer]
        expected = expected_input_bytes(slot, view, tensor, poison)
        found = _differences(region[slot.start : slot.end], 0, slot.nbytes, expected.__getitem__)
        if found:
            return Damage("input", view.buffer, *found)
    return None


def expected_input_bytes(slot: Slot, view: View, tensor: Tensor, poison: FillPattern) -> Tensor:
    """The bytes of an input's slot after `prepare`, with the pattern between its elements."""
    expected = _poisoned(0, slot.nbytes + -slot.nbytes % 8, poison, tensor)
    alone = Layout((Slot(0, slot.nbytes, slot.input),), (), slot.nbytes)
    window(expected, alone, replace(view, buffer=0)).copy_(tensor)
    return expected[: slot.nbytes]


def _differences(
    actual: Tensor, low: int, high: int, expected: Callable[[slice], Tensor]
) -> tuple[int, int] | None:
    """The first unexpected byte from `low` to `high`, and the number of such bytes.

    It compares pieces, because a band may have gigabytes.
    """
    first, count = None, 0
    for start in range(low, high, PIECE_BYTES):
        piece = slice(start, min(start + PIECE_BYTES, high))
        changed = actual[piece] != expected(piece)
        found = int(changed.count_nonzero())
        if found and first is None:
            first = start + int(changed.byte().argmax())
        count += found
    return None if first is None else (first, count)


def _distance(slot: Slot, offset: int) -> int:
    return slot.start - offset if offset < slot.start else offset - slot.end + 1
