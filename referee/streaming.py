"""A kernel of the referee's own that reads and writes given numbers of bytes once each, as fast as the device can.

Reading is cheaper than writing on most memories, so the floor of an operation has to have its mix of both: element j of
the output is the sum of elements j, W + j, 2W + j … of the input, W being the output's length. Runs only in the replay
worker. Limits: whole 32-bit words.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

# (elements a program, warps): which is fastest differs by device and size, so each is tried once.
SHAPES = ((1024, 4), (2048, 8), (4096, 8), (8192, 8))
TRIALS = 7


@triton.jit  # type: ignore[untyped-decorator]
def _stream(source, target, read, written, SLABS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < written
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for slab in tl.static_range(SLABS):
        place = slab * written + at
        total += tl.load(source + place, mask=inside & (place < read), other=0)
    tl.store(target + at, total, mask=inside)


@dataclass(frozen=True)
class Stream:
    """Buffers and the fastest shape of the kernel for reading `read` and writing `written` bytes."""

    source: torch.Tensor
    target: torch.Tensor
    block: int
    warps: int

    def __call__(self) -> None:
        """Queue one pass."""
        _launch(self.source, self.target, self.block, self.warps)


def stream(read: int, written: int) -> Stream:
    """A stream of that many bytes, its shape chosen by timing each of SHAPES a few times."""
    source = torch.randint(-(2**31), 2**31 - 1, (max(1, read // 4),), dtype=torch.int32, device="cuda")
    target = torch.empty(max(1, written // 4), dtype=torch.int32, device="cuda")
    times = {shape: _median(source, target, *shape) for shape in SHAPES}
    return Stream(source, target, *min(times, key=times.__getitem__))


def _launch(source: torch.Tensor, target: torch.Tensor, block: int, warps: int) -> None:
    read, written = source.numel(), target.numel()
    grid = (triton.cdiv(written, block),)
    _stream[grid](source, target, read, written, SLABS=triton.cdiv(read, written), BLOCK=block, num_warps=warps)


def _median(source: torch.Tensor, target: torch.Tensor, block: int, warps: int) -> float:
    """Milliseconds of one pass, the queue kept full."""
    _launch(source, target, block, warps)
    event: Any = torch.cuda.Event
    pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(TRIALS)]
    for start, stop in pairs:
        start.record()
        _launch(source, target, block, warps)
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(float(start.elapsed_time(stop)) for start, stop in pairs)
