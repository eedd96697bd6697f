"""Head-to-head replays on a GPU: the slower kernel loses, the same kernel does not win, a wrong one
is refused.
"""

from __future__ import annotations

import pytest

from referee.gpu.replayer import Replayer, ReplayerError
from referee.head_to_head import HeadToHeadRefused, time_head_to_head
from tests.save.conftest import source

GOLD = source("online_softmax")


@pytest.mark.gpu
def test_the_same_kernel_takes_no_crown_from_itself() -> None:
    found = time_head_to_head(GOLD, GOLD, "softmax")
    assert found.decision in ("tie", "unsure")
    assert 0.97 < found.ratio.ratio < 1.03


@pytest.mark.gpu
def test_the_faster_kernel_wins_in_both_corners() -> None:
    fast = source("rows_softmax")
    there, back = time_head_to_head(fast, GOLD, "softmax"), time_head_to_head(GOLD, fast, "softmax")
    assert 0.95 < there.ratio.ratio * back.ratio.ratio < 1.05


@pytest.mark.gpu
def test_a_wrong_kernel_is_refused_by_name() -> None:
    with pytest.raises(HeadToHeadRefused, match="champion"):
        time_head_to_head(GOLD, GOLD.replace("tl.exp(", "tl.exp2("), "softmax")


def test_without_a_gpu_nothing_is_decided() -> None:
    if Replayer.available() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(ReplayerError):
        time_head_to_head(GOLD, GOLD, "softmax")
