"""A kernel of the referee that reads and writes given numbers of bytes once each, at full speed.

Most memories read faster than they write, so the floor has the operation's mix of both. Element j
of the output is the sum of elements j, W + j, 2W + j … of the input; W is the output's length. Runs
only in the replay worker. Limits: whole 32-bit words.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from referee.replaying.own_kernel import OwnKernel
from referee.replaying.replay_check import free_bytes

# (elements per program, warps): the fastest differs by device and size, so each is tried once.
SHAPES = ((1024, 4), (2048, 8), (4096, 8), (8192, 8))
TRIALS = 8
# Number of allocations. Speed varies by some per cent with the place in memory; several places
# average it.
PLACES = 4
# Share of the free memory, because the candidate and the baselines need the rest.
MEMORY_SHARE = 0.25

Pairs = tuple[tuple[torch.Tensor, torch.Tensor], ...]


@triton.jit  # type: ignore[untyped-decorator]
def _stream(source, target, read, written, SLABS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    inside = at < written
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    place = at
    for _ in tl.static_range(SLABS):
        total += tl.load(source + place, mask=inside, other=0)
        first += written
        place += written
    # The rest is mostly a few small operands, such as a norm's weight; only programs that read it
    # may pay for it.
    if first < read:
        total += tl.load(source + place, mask=inside & (place < read), other=0)
    tl.store(target + at, total, mask=inside)


_STREAMS = {warps: OwnKernel(_stream, warps=warps) for _, warps in SHAPES}


@dataclass(frozen=True)
class Stream:
    """Pairs of a source and a target, and the kernel's fastest shape for them."""

    pairs: Pairs
    block: int
    warps: int

    def __call__(self, index: int) -> None:
        """Queues one pass, on another pair for each of the first indices."""
        _launch(*self.pairs[index % len(self.pairs)], self.block, self.warps)


def stream(read: int, written: int) -> Stream:
    """A stream of that many bytes, of the fastest shape. Raises torch.OutOfMemoryError."""
    pairs = tuple(
        (_numbers(read), _numbers(written))
        for _ in range(place_count(read + written, free_bytes()))
    )
    times = {shape: _median(pairs, *shape) for shape in SHAPES}
    return Stream(pairs, *min(times, key=times.__getitem__))


def place_count(size: int, free: int) -> int:
    """Number of allocations of `size` bytes: PLACES, or fewer if `free` bytes are short."""
    return max(1, min(PLACES, int(MEMORY_SHARE * free) // max(1, size)))


def _numbers(size: int) -> torch.Tensor:
    return torch.randint(
        -(2**31), 2**31 - 1, (max(1, size // 4),), dtype=torch.int32, device="cuda"
    )


def _launch(source: torch.Tensor, target: torch.Tensor, block: int, warps: int) -> None:
    read, written = source.numel(), target.numel()
    grid = (triton.cdiv(written, block),)
    _STREAMS[warps].launch(
        grid, (source, target, read, written), {"SLABS": read // written, "BLOCK": block}
    )


def _median(places: Pairs, block: int, warps: int) -> float:
    _launch(*places[0], block, warps)
    event: Any = torch.cuda.Event
    events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(TRIALS)]
    for trial, (start, stop) in enumerate(events):
        start.record()
        _launch(*places[trial % len(places)], block, warps)
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(float(start.elapsed_time(stop)) for start, stop in events)
