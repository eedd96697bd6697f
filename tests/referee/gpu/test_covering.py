"""Covering memory: undone by a second time, even, and nothing outside. On this machine's GPU if it has one."""

from __future__ import annotations

import pytest
import torch

from referee.covering import cover
from tests.referee.gpu.interpreted import in_interpreter

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_the_kernel_in_triton_s_interpreter() -> None:
    assert in_interpreter("covering_interpreted.py") == (0, "")


@pytest.mark.parametrize("size", [0, 1, 1001, 4096, 1 << 20])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_second_time_undoes_it_and_nothing_outside_changes(device: str, size: int) -> None:
    whole = torch.arange(size + 128, device=device).to(torch.uint8)
    kept, memory = whole.clone(), whole[64 : 64 + size]
    cover(memory, 7)
    assert torch.equal(whole[:64], kept[:64]) and torch.equal(whole[64 + size :], kept[64 + size :])
    changed = (memory != kept[64 : 64 + size]).sum().item()
    assert size < 1000 or 0.98 < changed / size < 1
    first = memory.clone()
    cover(memory, 7)
    assert torch.equal(whole, kept)
    cover(memory, 8)
    assert size < 1000 or not torch.equal(memory, first)
