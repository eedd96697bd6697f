"""Races between variants of one kernel: what is refused and why, and on a GPU that the faster one is seen to be faster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from referee.device.gpu import Checked
from referee.device.jobs import Prepared, TaskName
from referee.judge import Referee
from referee.race import Lap, NoRace, race
from referee.sandbox.workers import Workers
from referee.subject import Subject
from referee.target import Target
from referee.verdict import Rejection

SLOW = """\
@triton.jit
def _relu2(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32), 0.0)
    tl.store(y_ptr + offsets, x * x, mask=mask)


def run(x):
    y = torch.empty_like(x)
    BLOCK = 32
    _relu2[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=1)
    return y
"""
FAST = SLOW.replace("BLOCK = 32", "BLOCK = 1024").replace("num_warps=1", "num_warps=4")
SHORT = SLOW.replace("triton.cdiv(x.numel(), BLOCK)", "triton.cdiv(x.numel(), 2 * BLOCK)")
BROKEN = SLOW.replace("x * x", "x * z")


class Track:
    """The replay worker's part, for a machine without a GPU: finds the wrong grid, and times by the length of the source."""

    def __init__(self) -> None:
        self.raced: list[Prepared] = []

    def check(self, prepared: Prepared, *, seed: int) -> Checked:
        (job,) = prepared.jobs
        grid = job.plan.steps[-1].configs[0].grid[0]  # type: ignore[union-attr]
        wrong = grid < job.cell.inputs[0].shape[0] * job.cell.inputs[0].shape[1] // 1024
        return Checked((), Rejection("correct", "wrong_answer", "half of it is missing") if wrong else None, ())

    def race(self, prepared: Sequence[Prepared], *, seed: int) -> list[tuple[float, float]]:
        self.raced = list(prepared)
        return [(10.0 / (1 + number), 1.0 + number) for number, _ in enumerate(prepared)]


def held(sources: Sequence[str], track: Track) -> tuple[Lap, ...]:
    cell = Subject("relu2").bench()
    assert cell is not None
    with Workers() as workers:
        return race(workers, track, sources, TaskName("relu2"), cell, Target(), seed=1)  # type: ignore[arg-type]


def test_every_variant_gets_a_lap_or_a_reason() -> None:
    track = Track()
    halved = SLOW.replace("triton.cdiv(x.numel(), BLOCK)", "1")
    first, broken, second, wrong = held([SLOW, BROKEN, FAST, halved], track)
    assert (first, second) == (Lap(10.0, 1.0), Lap(5.0, 2.0))
    assert broken.us is None and "z" in broken.refused
    assert wrong == Lap(None, None, "half of it is missing")
    assert len(track.raced) == 2


def test_without_a_passing_kernel_to_start_from_there_is_no_race() -> None:
    with pytest.raises(NoRace, match="the kernel to start from does not pass"):
        held([BROKEN, FAST], Track())


def test_without_a_gpu_there_is_no_race() -> None:
    with Referee(mode="interpret") as referee, pytest.raises(NoRace, match="a race needs a GPU"):
        referee.race([SLOW, FAST], "relu2")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_faster_variant_is_seen_to_be_faster() -> None:
    with Referee() as referee:
        laps = referee.race([SLOW, FAST, SHORT, BROKEN, SLOW.replace("y = torch", "y = torch")], "relu2")
    first, fast, short, broken, same = laps
    assert first.ratio == 1.0
    assert fast.us is not None and first.us is not None and fast.ratio is not None
    assert fast.us < first.us and fast.ratio > 1.2
    assert short.us is None and "elements" in short.refused
    assert broken.us is None and broken.refused
    assert same.ratio is not None and abs(same.ratio - 1) < 0.05
