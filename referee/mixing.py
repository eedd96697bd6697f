"""Fresh values without drawing them anew: every word of a tensor comes from one of two drawn tensors, which one is random.

Where the elements of both follow one distribution, so do those of the mixture, and no two mixtures of the same tensors are alike. The
choices follow from a seed and are never stored. On a GPU a kernel of the referee's own draws them as it goes (Philox; Salmon et al.,
Parallel random numbers: as easy as 1, 2, 3, 2011), so that a mixture costs no more than reading both tensors and writing one; on the
CPU, where nothing is timed, torch's generator does, and the same seed gives another mixture. Limits: structure that ties elements
together, such as sorted rows, is lost; two float16 that share a word are chosen together.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 4  # groups of four words a program
ROUNDS = 7  # the fewest of Philox that pass every test of randomness (ibid., table 2)
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit(do_not_specialize=["seed"])  # type: ignore[untyped-decorator]
def _mix(target, first, second, count, seed, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    one, two, three, four = tl.randint4x(seed, program * BLOCK + lane, ROUNDS)
    at = program.to(tl.int64) * (4 * BLOCK) + lane
    _choose(target, first, second, at, count, one)
    _choose(target, first, second, at + BLOCK, count, two)
    _choose(target, first, second, at + 2 * BLOCK, count, three)
    _choose(target, first, second, at + 3 * BLOCK, count, four)


@triton.jit
def _choose(target, first, second, at, count, drawn):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    inside = at < count
    tl.store(target + at, tl.where((drawn & 1) != 0, tl.load(first + at, mask=inside), tl.load(second + at, mask=inside)), mask=inside)


def mixed(first: Tensor, second: Tensor, seed: int) -> Tensor:
    """A new contiguous tensor whose elements come from `first` or `second`, of one shape, dtype and device, by `seed` of 63 bits."""
    if not first.is_cuda:
        generator = torch.Generator(first.device).manual_seed(seed)
        return torch.where(torch.randint(0, 2, first.shape, generator=generator, dtype=torch.bool), first, second)
    first, second = first.contiguous(), second.contiguous()
    made = torch.empty_like(first)
    width = first.element_size()
    size = width if width == 8 or made.numel() * width % 4 else 4
    words = [tensor.flatten().view(torch.uint8).view(WORDS[size]) for tensor in (made, first, second)]
    if count := words[0].numel():
        _mix[(triton.cdiv(count, 4 * BLOCK),)](*words, count, seed, BLOCK=BLOCK, ROUNDS=ROUNDS, num_warps=WARPS)
    return made
