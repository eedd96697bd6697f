"""Where a plan's buffers lie in memory: one region, every buffer between guard bands, everything poisoned beforehand.

`layout` is plain arithmetic and imports no torch; the other functions work on a one-dimensional uint8 tensor on any device, so
that the CPU executor and the GPU replayer share them. A poison is chosen to be NaN (or huge) in every floating type at
once, so the bands need no dtype. Limits: a stray access further than `GUARD_BYTES` from every buffer is not seen here.
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
GUARD_BYTES = 1 << 16
PIECE_BYTES = 1 << 26
LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Poison:
    """A two-byte pattern that unwritten memory and guard bands are filled with."""

    name: str
    pattern: bytes


# 0xffff.. is NaN in float64, float32, float16 and bfloat16, and -1 in integers. 0x7b7b.. is 61280 in float16 and about 1e36 in
# bfloat16 and float32: it survives where a NaN would be swallowed, as in maximum(NaN, x).
NAN = Poison("nan", b"\xff\xff")
HUGE = Poison("huge", b"\x7b\x7b")
# What a kernel takes for nothing yet, and what is below everything: -65376 in float16, about -3e36 in bfloat16 and float32.
ZERO = Poison("zero", b"\x00\x00")
NEGATIVE = Poison("negative", b"\xfb\xfb")
# What an earlier call might have left: 1.06 in float16, 0.011 in bfloat16 and float32.
ORDINARY = Poison("ordinary", b"\x3c\x3c")
POISONS = (NAN, HUGE, ZERO, NEGATIVE, ORDINARY)

LEFT_BEHIND = (
    "wrong in memory that an earlier call left behind: the kernel depends on what its output or scratch memory holds before it is written"
)


@dataclass(frozen=True)
class Slot:
    """One buffer's place: byte offset in the region, size, and the input it holds (None for scratch and outputs)."""

    start: int
    nbytes: int
    input: int | None

    @property
    def end(self) -> int:
        """First byte after the buffer."""
        return self.start + self.nbytes


@dataclass(frozen=True)
class Layout:
    """Slots by buffer index, the byte ranges between them, and the size of the region."""

    slots: tuple[Slot, ...]
    guards: tuple[tuple[int, int], ...]
    total: int

    def within(self, start: int, size: int) -> Layout:
        """The same `start` bytes into a region of `size` bytes; what lies before and after it is watched like a guard band."""
        slots = tuple(Slot(slot.start + start, slot.nbytes, slot.input) for slot in self.slots)
        inner = [end + start for _, end in self.guards[:-1]]
        ends = [low + start for low, _ in self.guards[1:]]
        return Layout(slots, tuple(zip([0, *ends], [*inner, size], strict=True)), size)


@dataclass(frozen=True)
class Damage:
    """What a run did to memory that was not its own: changed a guard band or an input.

    `buffer` is the changed input or the buffer nearest to the changed band, `offset` the first changed byte counted from its
    start, `count` the number of changed bytes.
    """

    kind: Literal["guard", "input"]
    buffer: int
    offset: int
    count: int


def second_poison(cell: str) -> Poison:
    """What the second run of the cell of this name finds in memory: over the cells of a task each poison but NaN in turn."""
    return POISONS[1:][zlib.crc32(cell.encode()) % len(POISONS[1:])]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def layout(plan: LaunchPlan, *, reverse: bool = False, lead: int = 0) -> Layout:
    """Places every buffer of `plan`. `reverse` places them in the opposite order: other pointers, same plan.

    `lead` makes the band before each buffer that many bytes longer, so that offsets which wrap around still hit the band.
    """
    order = range(len(plan.buffers))
    slots: dict[int, Slot] = {}
    guards = []
    end = 0
    for index in reversed(order) if reverse else order:
        buffer = plan.buffers[index]
        start = _aligned(end + GUARD_BYTES + lead)
        guards.append((end, start))
        slots[index] = Slot(start, buffer.nbytes, buffer.input)
        end = start + buffer.nbytes
    total = _aligned(end + GUARD_BYTES)
    guards.append((end, total))
    return Layout(tuple(slots[index] for index in order), tuple(guards), total)


def window(region: Tensor, places: Layout, view: View) -> Tensor:
    """The tensor that `view` names, aliasing `region`, which may be of any dtype. Raises ValueError where it is misaligned or leaves its
    buffer."""
    slot = places.slots[view.buffer]
    dtype, end = _reach(view)
    if end is None or end > slot.nbytes:
        raise ValueError(f"view {view} does not fit buffer {view.buffer} of {slot.nbytes} bytes")
    start = region.storage_offset() * region.itemsize + slot.start + view.offset
    typed = region if region.dtype == dtype else region.view(dtype)
    return typed.as_strided(view.shape, view.strides, start // dtype.itemsize)


@functools.lru_cache(maxsize=1024)
def _reach(view: View) -> tuple[torch.dtype, int | None]:
    """A view's dtype, and where in its buffer it ends, in bytes; None when it is misaligned or begins before it."""
    import torch

    dtype: torch.dtype = getattr(torch, view.dtype)
    if view.offset < 0 or view.offset % dtype.itemsize or min(view.strides, default=0) < 0:
        return dtype, None
    if not all(view.shape):
        return dtype, view.offset
    last = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return dtype, view.offset + (1 + last) * dtype.itemsize


def _poisoned(start: int, length: int, poison: Poison, like: Tensor) -> Tensor:
    import torch

    pattern = int.from_bytes(poison.pattern, "little", signed=True)
    words = torch.full((length // 2 + 1,), pattern, dtype=torch.int16, device=like.device)
    return words.view(torch.uint8)[start % 2 :][:length]


def prepare(
    region: Tensor,
    places: Layout,
    plan: LaunchPlan,
    inputs: Sequence[Tensor | None],
    poison: Poison,
    targets: Sequence[Tensor] | None = None,
) -> None:
    """Poisons all of `region` (`places.total` bytes), then writes `inputs`, in the plan's order, into their buffers.

    None is for an input that the caller is going to write, and from end to end where it is large: it may be left as it was. `targets`
    are the windows of the inputs, for who has them.
    """
    import torch

    pattern = int.from_bytes(poison.pattern, "little", signed=True)
    targets = targets or [window(region, places, view) for view in plan.inputs]
    # What an input overwrites from end to end needs no poison first: of large ones that saves the device a third of the work.
    slots = [places.slots[view.buffer] for view in plan.inputs]
    whole = sorted((slot.start, slot.end) for slot, target in zip(slots, targets, strict=True) if _fills(target, slot))
    low, words = 0, region.view(torch.int16)
    for start, end in (*whole, (places.total, places.total)):
        assert not start % 2, start
        words[low // 2 : start // 2].fill_(pattern)
        low = end - end % 2
    for target, tensor in zip(targets, inputs, strict=True):
        if tensor is not None:
            target.copy_(tensor)


def _fills(target: Tensor, slot: Slot) -> bool:
    """Whether writing to a large `target` leaves no byte of its slot as it was."""
    return target.is_contiguous() and target.numel() * target.element_size() == slot.nbytes >= LARGE_BYTES


def damage(region: Tensor, places: Layout, plan: LaunchPlan, inputs: Sequence[Tensor], poison: Poison) -> Damage | None:
    """The first sign of a write outside the plan's own scratch and outputs, or None. `region` was made by `prepare`."""
    for low, high in places.guards:
        found = _differences(region, low, high, lambda piece: _poisoned(piece.start, piece.stop - piece.start, poison, region))
        if found:
            offset, count = found
            nearest = min(range(len(places.slots)), key=lambda index: _distance(places.slots[index], offset))
            return Damage("guard", nearest, offset - places.slots[nearest].start, count)
    for view, tensor in zip(plan.inputs, inputs, strict=True):
        slot = places.slots[view.buffer]
        expected = held(slot, view, tensor, poison)
        found = _differences(region[slot.start : slot.end], 0, slot.nbytes, expected.__getitem__)
        if found:
            return Damage("input", view.buffer, *found)
    return None


def held(slot: Slot, view: View, tensor: Tensor, poison: Poison) -> Tensor:
    """The bytes of an input's slot as `prepare` leaves them: `tensor`, and poison in the gaps between its elements."""
    expected = _poisoned(0, slot.nbytes + -slot.nbytes % 8, poison, tensor)
    alone = Layout((Slot(0, slot.nbytes, slot.input),), (), slot.nbytes)
    window(expected, alone, replace(view, buffer=0)).copy_(tensor)
    return expected[: slot.nbytes]


def _differences(actual: Tensor, low: int, high: int, expected: Callable[[slice], Tensor]) -> tuple[int, int] | None:
    """The first byte from `low` to `high` that is not as expected, and how many are not. In pieces, for bands of gigabytes."""
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
