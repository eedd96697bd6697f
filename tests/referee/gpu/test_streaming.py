"""The traffic that a floor is timed with: every word is read once and written once. On this
machine's GPU if it has one.
"""

from __future__ import annotations

import pytest
import torch

from tests.referee.gpu.interpreted import in_interpreter


def test_the_kernel_in_triton_s_interpreter() -> None:
    assert in_interpreter("streaming_interpreted.py") == (0, "")


@pytest.mark.parametrize(
    ("free", "expected"),
    [(1 << 40, 4), (64 << 30, 4), (48 << 30, 3), (63 << 30, 3), (16 << 30, 1), (0, 1)],
)
def test_the_traffic_takes_at_most_a_quarter_of_free_memory(free: int, expected: int) -> None:
    from referee.timing.streaming import place_count

    assert place_count(4 << 30, free) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("read", "written"),
    [(1 << 26, 1 << 26), ((1 << 26) + 8192, 1 << 26), (3 << 24, 1 << 24), (1 << 20, 1 << 26)],
)
def test_every_place_of_the_traffic_on_a_gpu(read: int, written: int) -> None:
    from referee.timing.streaming import PLACES, stream
    from tests.referee.gpu.streaming_interpreted import summed

    made = stream(read, written)
    assert len(made.pairs) == PLACES
    for index, (source, target) in enumerate(made.pairs):
        made(index)
        assert torch.equal(target, summed(source, target.numel()))
