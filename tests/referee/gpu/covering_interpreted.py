"""Run as a program with TRITON_INTERPRET=1: the kernel that covers memory on a GPU, on memory of the CPU. Silent when it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from referee import covering


class Memory:
    """A tensor that says it is on a GPU, and whose views do."""

    is_cuda = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def view(self, dtype: torch.dtype) -> Memory:
        return Memory(self.tensor.view(dtype))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def covered(memory: torch.Tensor, seed: int) -> torch.Tensor:
    covering.cover(Memory(memory), seed)  # type: ignore[arg-type]
    return memory


def main() -> None:
    for size in (0, 1, 3, 4, 4096, 4 * 4 * covering.BLOCK + 36, 4 * covering.BLOCK + 7):
        whole = torch.arange(size + 128, dtype=torch.int64).to(torch.uint8)
        kept, memory = whole.clone(), whole[64 : 64 + size]
        first = covered(memory, 2**62 + 5).clone()
        assert torch.equal(whole[:64], kept[:64]) and torch.equal(whole[64 + size :], kept[64 + size :]), "it wrote outside"
        assert torch.equal(covered(memory, 2**62 + 5), kept[64 : 64 + size]), "a second time does not undo it"
        other = covered(memory, 2**62 + 6)
        if size > 1000:
            for pad in (first ^ kept[64 : 64 + size], other ^ first):
                bits = np.unpackbits(pad.numpy())
                assert abs(bits.mean() - 0.5) < 4 * 0.5 / bits.size**0.5, "the numbers are not even"
                words = pad[: size // 4 * 4].view(torch.int32)
                assert size % 4 or len(set(words.tolist())) >= len(words) - 2, "numbers come twice"


if __name__ == "__main__":
    main()
