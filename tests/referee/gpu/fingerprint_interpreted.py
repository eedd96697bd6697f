"""Run as a program with TRITON_INTERPRET=1: the kernel that takes fingerprints on a GPU gives the
numbers that torch does on the CPU.
"""

from __future__ import annotations

import torch

from referee.replaying.replay import INTEGERS
from referee.timing import fingerprint as module


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        for size in (1, 3, 4096, 2 * module.BLOCK + 9):
            whole = torch.randint(0, 256, (8 * size,), generator=generator, dtype=torch.uint8)
            words = whole[: size * dtype.itemsize].view(dtype)
            several = [words, words.clone(), words.flip(0), words, words + 1, words]
            for key, tensors in ((2**62 + 5, [words]), (3, [words]), (2**40 + 9, several)):
                sums = torch.zeros(len(tensors), dtype=torch.int64)
                grid = (-(-size // module.BLOCK), -(-len(tensors) // module.TOGETHER))
                apart, stride = module._apart(
                    [tensor.data_ptr() for tensor in tensors], dtype.itemsize
                )
                offsets, stride, pad = (
                    (torch.tensor(apart), stride, None)
                    if len(tensors) > 1
                    else (None, 1, -(2**63) + 5)
                )
                module._add_up[grid](
                    words,
                    offsets,
                    len(tensors),
                    size,
                    key,
                    sums,
                    pad,
                    **module.CONSTANTS,
                    STRIDE=stride,
                )
                expected = module.read([module._noted(tensors, key)])
                assert [(int(one) - (pad or 0)) % 2**64 for one in sums] == expected, (
                    dtype,
                    size,
                    key,
                )
    assert set(INTEGERS) == {1, 2, 4, 8}


if __name__ == "__main__":
    main()
