"""Fresh values without new draws: every element of a tensor comes at random from one of two drawn
tensors.

If the elements of both follow one distribution, so does the mixture, and no two mixtures are equal.
The choices follow from a seed and are never stored. On a GPU, a kernel of the referee draws them on
the way (Philox; Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011), so a mixture
costs two reads and one write. On the CPU, where nothing is timed, torch's generator draws them, and
the same seed gives another mixture. Limits: structure between elements, such as sorted rows, is
lost.
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
BITS = 4
"""Bits used per drawn number. Philox draws four, so a program covers 4 * BITS * BLOCK elements."""
KINDS = 256
"""Maximum number of tensor kinds with prepared launches."""
ROUNDS = 7
"""Fewest rounds of Philox that pass every test of randomness (ibid., table 2)."""


@triton.jit(do_not_specialize=["seed"])  # type: ignore[untyped-decorator]
def _mix(  # type: ignore[no-untyped-def]
    target,
    first,
    second,
    count,
    seed,
    BLOCK: tl.constexpr,
    BITS: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    drawn = tl.randint4x(seed, program * BLOCK + lane, ROUNDS)
    start = program.to(tl.int64) * (4 * BITS * BLOCK) + lane
    for part in tl.static_range(4):
        for bit in tl.static_range(BITS):
            at = start + (part * BITS + bit) * BLOCK
            inside = at < count
            one, other = tl.load(first + at, mask=inside), tl.load(second + at, mask=inside)
            tl.store(
                target + at, tl.where(((drawn[part] >> bit) & 1) != 0, one, other), mask=inside
            )


_MIX = OwnKernel(_mix, warps=WARPS, any_number=(4,))


class Values(Protocol):
    """The values of a tensor, which need not exist yet."""

    def write(self, target: Tensor) -> None:
        """Writes the values to a tensor of the same shape and dtype."""

    def made(self) -> Tensor:
        """A tensor with the values."""


@dataclass(frozen=True)
class Drawn:
    """The values of an existing tensor."""

    tensor: Tensor

    def write(self, target: Tensor) -> None:
        """See Values."""
        target.copy_(self.tensor)

    def made(self) -> Tensor:
        """See Values."""
        return self.tensor


@dataclass(frozen=True)
class Mixed:
    """Elements from `first` or `second`, chosen by `seed` (63 bits).

    Both tensors are contiguous and agree in shape, dtype and device.
    """

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
    """Mixtures of this many elements of these bytes, from three addresses and a seed."""
    # As integers, because a mixture copies bits; booleans are bytes.
    words = (Pointer(ALIGNMENT if even else size, INTEGERS[size]) for even in aligned)
    constants = {"BLOCK": BLOCK, "BITS": BITS, "ROUNDS": ROUNDS}
    return Series(
        _MIX, (-(-count // (4 * BITS * BLOCK)),), (*words, count, 1 << 62), constants, (0, 1, 2, 4)
    )
