"""Run as a program with TRITON_INTERPRET=1: the traffic that a floor is timed with, on memory of
the CPU. Silent when it is right.
"""

from __future__ import annotations

import torch

from referee.timing import streaming


def summed(source: torch.Tensor, written: int) -> torch.Tensor:
    """What the traffic leaves: element j of the output is the sum of elements j, W + j, 2W + j … of
    the input.
    """
    whole = torch.cat([source, source.new_zeros(-source.numel() % written)])
    return whole.view(-1, written).sum(0, dtype=torch.int32)


def main() -> None:
    for block, _ in streaming.SHAPES:
        # As many elements, several times as many, fewer, some left over, and sizes that no block
        # divides.
        for read, written in (
            (4096, 4096),
            (9000, 3000),
            (1000, 5000),
            (2 * 5000 + 7, 5000),
            (5000 + 4500, 5000),
            (1, 1),
        ):
            source = torch.randint(-(2**31), 2**31 - 1, (read,), dtype=torch.int32)
            whole = torch.full((written + 128,), 7, dtype=torch.int32)
            streaming._launch(source, whole[64 : 64 + written], block, 4)
            assert torch.equal(whole[64 : 64 + written], summed(source, written)), (
                f"{read} to {written} by {block}"
            )
            assert (whole[:64] == 7).all() and (whole[64 + written :] == 7).all(), (
                "it wrote outside"
            )


if __name__ == "__main__":
    main()
