"""Run as a program with TRITON_INTERPRET=1: the kernel that mixes values on a GPU, on memory of the
CPU. Silent when it is right.
"""

from __future__ import annotations

import torch

from referee.replaying.replay import INTEGERS
from referee.timing import mixing

COVERED = 4 * mixing.BITS * mixing.BLOCK  # by one program
SIZES = {"BLOCK": mixing.BLOCK, "BITS": mixing.BITS, "ROUNDS": mixing.ROUNDS}


def made(first: torch.Tensor, second: torch.Tensor, seed: int) -> torch.Tensor:
    """What the kernel writes, between guard bands of sevens."""
    whole = torch.full((first.numel() + 128,), 7, dtype=first.dtype)
    target = whole[64 : 64 + first.numel()]
    mixing._mix[grid(first)](target, first, second, first.numel(), seed, **SIZES)
    assert (whole[:64] == 7).all() and (whole[-64:] == 7).all(), "it wrote outside"
    return target


def grid(tensor: torch.Tensor) -> tuple[int]:
    """As many programs as cover a tensor."""
    return (-(-tensor.numel() // COVERED),)


def main() -> None:
    for dtype in INTEGERS.values():
        for size in (1, 3, 4096, 2 * COVERED + 9):
            first, second = torch.full((size,), 1, dtype=dtype), torch.full((size,), 2, dtype=dtype)
            found = made(first, second, 2**62 + 5)
            assert ((found == 1) | (found == 2)).all(), "an element of neither"
            assert torch.equal(found, made(first, second, 2**62 + 5)), (
                "the same seed gives another mixture"
            )
            if size > 1000:
                other = made(first, second, 2**62 + 6)
                for share in ((found == 1).double().mean(), (found == other).double().mean()):
                    assert abs(float(share) - 0.5) < 4 * 0.5 / size**0.5, "the choices are not even"
                for shift in (mixing.BLOCK, mixing.BITS * mixing.BLOCK, size // 2):
                    if shift < size:
                        alike = (found[:-shift] == found[shift:]).double().mean()
                        assert abs(float(alike) - 0.5) < 4 * 0.5 / (size - shift) ** 0.5, (
                            "the choices come twice"
                        )


if __name__ == "__main__":
    main()
