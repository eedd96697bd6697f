"""Fresh values without drawing them anew: every element of a tensor comes from one of two drawn tensors, which one is random.

Where the elements of both follow one distribution, so do those of the mixture, and no two mixtures of the same tensors are alike. The
choices follow from a seed and are never stored: on a GPU a kernel of the referee's own draws them as it goes (Philox; Salmon et al.,
Parallel random numbers: as easy as 1, 2, 3, 2011), so that a mixture costs no more than reading two tensors and writing one. On the
CPU, where nothing is timed, torch's generator does, and the same seed gives another mixture. Limits: structure that ties elements
together, such as sorted rows, is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from referee.replaying.own_kernel import ALIGNMENT, OwnKernel, Pointer, Series
from referee.replaying.replay import INTEGERS

BLOCK, WARPS = 1024, 4
BITS = 4  # used of every number drawn; Philox draws four at a time, so a program covers 4 * BITS * BLOCK elements
KINDS = 256  # of tensors whose launches are kept ready
ROUNDS = 7  # the fewest of Philox that pass every test of randomness (ibid., table 2)


@triton.jit(do_not_specialize=["seed"])  # type: ignore[untyped-decorator]
def _mix(target, first, second, count, seed, BLOCK: tl.constexpr, BITS: tl.constexpr, ROUNDS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    drawn = tl.randint4x(seed, program * BLOCK + lane, ROUNDS)
    start = program.to(tl.int64) * (4 * BITS * BLOCK) + lane
    for part in tl.static_range(4):
        for bit in tl.static_range(BITS):
            at = start + (part * BITS + bit) * BLOCK
            inside = at < count
            one, other = tl.load(first + at, mask=inside), tl.load(second + at, mask=inside)
            tl.store(target + at, tl.where(((drawn[part] >> bit) & 1) != 0, one, other), mask=inside)


_MIX = OwnKernel(_mix, warps=WARPS, any_number=(4,))


class Values(Protocol):
    """What a tensor is to hold, whether it exists or not."""

    def write(self, target: Tensor) -> None:
        """Write it to a tensor of the same shape and dtype."""

    def made(self) -> Tensor:
        """A tensor that holds it."""


@dataclass(frozen=True)
class Drawn:
    """The values of a tensor, as it is."""

    tensor: Tensor

    def write(self, target: Tensor) -> None:
        """See Values."""
        target.copy_(self.tensor)

    def made(self) -> Tensor:
        """See Values."""
        return self.tensor


@dataclass(frozen=True)
class Mixed:
    """Every element from `first` or `second`, of one shape, dtype and device, both contiguous, by `seed` of 63 bits."""

    first: Tensor
    second: Tensor
    seed: int

    def write(self, target: Tensor) -> None:
        """See Values."""
        if not target.is_cuda:
            generator = torch.Generator(target.device).manual_seed(self.seed)
            choices = torch.randint(0, 2, self.first.shape, generator=generator, dtype=torch.bool)
            torch.where(choices, self.first, self.second, out=target)
        elif not target.is_contiguous():
            target.copy_(self.made())
        elif count := target.numel():
            places = target.data_ptr(), self.first.data_ptr(), self.second.data_ptr()
            aligned = tuple(place % ALIGNMENT == 0 for place in places)
            _mixtures(count, target.element_size(), aligned).launch(*places, self.seed)

    def made(self) -> Tensor:
        """See Values."""
        made = torch.empty_like(self.first)
        self.write(made)
        return made


@lru_cache(KINDS)
def _mixtures(count: int, size: int, aligned: tuple[bool, ...]) -> Series:
    """Mixtures of so many elements of so many bytes; where all three tensors lie, and the seed, are given to each."""
    # As integers: a mixture has the bits of what it is mixed of, and booleans are bytes.
    words = (Pointer(ALIGNMENT if even else size, INTEGERS[size]) for even in aligned)
    constants = {"BLOCK": BLOCK, "BITS": BITS, "ROUNDS": ROUNDS}
    return Series(_MIX, (-(-count // (4 * BITS * BLOCK)),), (*words, count, 1 << 62), constants, (0, 1, 2, 4))
