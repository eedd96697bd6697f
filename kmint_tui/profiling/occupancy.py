"""The theoretical occupancy of a compiled kernel, by the rules of NVIDIA's programming guide.

Limits: it says how many warps fit on a multiprocessor at once, not how many run. A grid with fewer
programs than fit gives less.
"""

from __future__ import annotations

from dataclasses import dataclass

from referee.target import DeviceProperties

WARP = 32
REGISTERS_TOGETHER, QUARTERS = 256, 4
"""Registers are given to warps in units of 256, in each of the four quarters of a multiprocessor.
"""
_MOST_BLOCKS = {75: 16, 80: 32, 86: 16, 87: 16, 89: 24, 90: 32, 100: 32, 110: 24, 120: 24}
"""Blocks on a multiprocessor at most, from each compute capability on."""


@dataclass(frozen=True)
class Occupancy:
    """The warps of a kernel that a multiprocessor holds, the most that it can hold, and the limit.

    `blocks` is the number of programs that a multiprocessor holds at once.
    """

    blocks: int
    warps: int
    most: int
    limit: str

    @property
    def share(self) -> float:
        """Warps over the most that a multiprocessor can hold."""
        return self.warps / self.most


def occupancy(
    *, registers: int | None, shared: int, num_warps: int, arch: int, card: DeviceProperties
) -> Occupancy:
    """The occupancy of a kernel on a card of compute capability `arch`, such as 90.

    `registers` are those of a thread, `shared` is the memory of a program in bytes. Without a known
    number of registers they limit nothing.
    """
    most = card.max_threads_per_multi_processor // WARP
    known = [capability for capability in _MOST_BLOCKS if capability <= arch]
    limits = {
        "warps": most // num_warps,
        "programs": _MOST_BLOCKS[max(known, default=min(_MOST_BLOCKS))],
    }
    if registers:
        warp = _rounded(registers * WARP, REGISTERS_TOGETHER)
        warps = card.regs_per_multiprocessor // QUARTERS // warp * QUARTERS
        limits["registers"] = warps // num_warps
    # From compute capability 8.0 on, CUDA itself takes 1 KiB of each program's shared memory.
    taken = _rounded(shared + 1024, 128) if arch >= 80 else _rounded(shared, 256)
    if taken:
        limits["shared memory"] = card.shared_memory_per_multiprocessor // taken
    limit = min(limits, key=limits.__getitem__)
    return Occupancy(limits[limit], limits[limit] * num_warps, most, limit)


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit
