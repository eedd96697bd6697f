"""Hide memory from later kernels, and bring it back: an exclusive or with numbers that follow from a seed.

The numbers are never stored. On a GPU a kernel of the referee's own draws them as it goes (Philox; Salmon et al., Parallel random
numbers: as easy as 1, 2, 3, 2011), so that covering costs no more than reading and writing the memory once; on the CPU, where nothing
is timed, torch's generator does. What one device covered only that device uncovers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 4  # groups of four numbers a program
ROUNDS = 7  # the fewest of Philox that pass every test of randomness (ibid., table 2)


@triton.jit(do_not_specialize=["seed"])  # type: ignore[untyped-decorator]
def _cover(target, count, seed, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    first, second, third, fourth = tl.randint4x(seed, program * BLOCK + lane, ROUNDS)
    at = program.to(tl.int64) * (4 * BLOCK) + lane
    _mix(target, at, count, first)
    _mix(target, at + BLOCK, count, second)
    _mix(target, at + 2 * BLOCK, count, third)
    _mix(target, at + 3 * BLOCK, count, fourth)


@triton.jit
def _mix(target, at, count, drawn):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    value = tl.load(target + at, mask=at < count, other=0)
    tl.store(target + at, value ^ drawn.to(value.dtype), mask=at < count)


def cover(memory: Tensor, seed: int) -> None:
    """Queue the exclusive or of `memory` (uint8, contiguous, on any device) with numbers drawn from `seed`, of 63 bits.

    A second time with the same seed undoes it.
    """
    if not memory.is_cuda:
        generator = torch.Generator(memory.device).manual_seed(seed)
        memory.bitwise_xor_(torch.randint(0, 256, memory.shape, generator=generator, dtype=torch.uint8))
        return
    numbers = memory.view(torch.int32) if memory.numel() % 4 == memory.storage_offset() % 4 == 0 else memory
    count = numbers.numel()
    if count:
        _cover[(triton.cdiv(count, 4 * BLOCK),)](numbers, count, seed, BLOCK=BLOCK, ROUNDS=ROUNDS, num_warps=WARPS)
