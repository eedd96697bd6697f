"""A flush of the L2 cache whose reading is a Triton kernel, to be compared with torch's reduction (`flushes.py`).

Reads the same bytes as the referee's own flush. A program sums BLOCK words TURNS times and stores the sum only if it is a number that
no counter of flushes reaches, so that the compiler cannot leave the loads out. Needs a CUDA device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from referee.measuring.rounds import Flush
from referee.replaying.own_kernel import OwnKernel

BLOCK, TURNS, WARPS = 2048, 8, 8
NEVER = -(2**31) + 1


@triton.jit
def _read(source, count, sink, BLOCK: tl.constexpr, TURNS: tl.constexpr, NEVER: tl.constexpr):  # noqa: ANN001, ANN202, N803
    start = tl.program_id(0).to(tl.int64) * (BLOCK * TURNS) + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for turn in tl.static_range(TURNS):
        at = start + turn * BLOCK
        total += tl.load(source + at, mask=at < count, other=0)
    found = tl.sum(total)
    if found == NEVER:
        tl.store(sink, found)


_READ = OwnKernel(_read, warps=WARPS)


class OwnReads(Flush):
    """Reads the buffer, as `Flush` does."""

    def queue(self) -> None:
        """Queue the flush kernel by kernel."""
        count = self._buffer.numel()
        for _ in range(self._reads):
            grid = (triton.cdiv(count, BLOCK * TURNS),)
            _READ.launch(grid, (self._buffer, count, self._sink), {"BLOCK": BLOCK, "TURNS": TURNS, "NEVER": NEVER})
