"""Run as a program with TRITON_INTERPRET=1: the kernel that mixes values on a GPU, on memory of the CPU. Silent when it is right."""

from __future__ import annotations

import torch

from referee import mixing


def made(first: torch.Tensor, second: torch.Tensor, seed: int) -> torch.Tensor:
    """What the kernel writes, between guard bands of sevens."""
    whole = torch.full((first.numel() + 128,), 7, dtype=first.dtype)
    target = whole[64 : 64 + first.numel()]
    grid = (-(-first.numel() // (4 * mixing.BLOCK)),)
    mixing._mix[grid](target, first, second, first.numel(), seed, BLOCK=mixing.BLOCK, ROUNDS=mixing.ROUNDS)
    assert (whole[:64] == 7).all() and (whole[-64:] == 7).all(), "it wrote outside"
    return target


def main() -> None:
    for dtype in mixing.WORDS.values():
        for size in (1, 3, 4096, 4 * 4 * mixing.BLOCK + 9):
            first, second = torch.full((size,), 1, dtype=dtype), torch.full((size,), 2, dtype=dtype)
            found = made(first, second, 2**62 + 5)
            assert ((found == 1) | (found == 2)).all(), "a word of neither"
            assert torch.equal(found, made(first, second, 2**62 + 5)), "the same seed gives another mixture"
            if size > 1000:
                other = made(first, second, 2**62 + 6)
                for share in ((found == 1).double().mean(), (found == other).double().mean()):
                    assert abs(float(share) - 0.5) < 4 * 0.5 / size**0.5, "the choices are not even"
                halves = found[: size // 2] == found[size // 2 : 2 * (size // 2)]
                assert abs(float(halves.double().mean()) - 0.5) < 4 * 0.5 / (size // 2) ** 0.5, "the choices come twice"


if __name__ == "__main__":
    main()
