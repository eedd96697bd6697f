"""Races between variants of one kernel: what is refused and why, and on a GPU that the faster one
is seen to be faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from referee.gpu.jobs import Checked, CompiledCandidate
from referee.judge import Referee
from referee.problem import Problem, TaskName
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.variant_timing import VariantsNotTimed, VariantTime, time_variants
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
    """The replay worker's part, for a machine without a GPU: finds the wrong grid, and times by the
    length of the source.
    """

    def __init__(self) -> None:
        self.raced: list[CompiledCandidate] = []

    def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
        (job,) = prepared.jobs
        grid = job.plan.steps[-1].configs[0].grid[0]  # type: ignore[union-attr]
        wrong = grid < job.cell.inputs[0].shape[0] * job.cell.inputs[0].shape[1] // 1024
        return Checked(
            (), Rejection("correct", "wrong_answer", "half of it is missing") if wrong else None, ()
        )

    def race(
        self, prepared: Sequence[CompiledCandidate], *, seed: int
    ) -> list[tuple[float, float]]:
        self.raced = list(prepared)
        return [(10.0 / (1 + number), 1.0 + number) for number, _ in enumerate(prepared)]


def held(workers: Workers, sources: Sequence[str], track: Track) -> tuple[VariantTime, ...]:
    cell = Problem("relu2").bench()
    assert cell is not None
    return time_variants(workers, track, sources, TaskName("relu2"), cell, Target(), seed=1)  # type: ignore[arg-type]


def test_every_variant_gets_a_lap_or_a_reason(workers: Workers) -> None:
    track = Track()
    halved = FAST.replace("triton.cdiv(x.numel(), BLOCK)", "triton.cdiv(x.numel(), 2 * BLOCK)")
    first, broken, second, wrong = held(workers, [SLOW, BROKEN, FAST, halved], track)
    assert (first, second) == (VariantTime(10.0, 1.0), VariantTime(5.0, 2.0))
    assert broken.us is None and "z" in broken.refused
    assert wrong == VariantTime(None, None, "half of it is missing")
    assert len(track.raced) == 2


def test_what_the_model_rules_out_is_not_raced(workers: Workers) -> None:
    track = Track()
    alone = FAST.replace("triton.cdiv(x.numel(), BLOCK)", "7")
    first, costly, fast = held(workers, [SLOW, alone, FAST], track)
    assert costly.us is None and "not raced: by the model it costs" in costly.refused
    assert "of the card's threads at work" in costly.refused
    assert first.us is not None and fast.us is not None and len(track.raced) == 2


def test_without_a_passing_kernel_to_start_from_there_is_no_race(workers: Workers) -> None:
    with pytest.raises(VariantsNotTimed, match="the kernel to start from does not pass"):
        held(workers, [BROKEN, FAST], Track())


def test_without_a_gpu_there_is_no_race(referee: Referee) -> None:
    with pytest.raises(VariantsNotTimed, match="a race needs a GPU"):
        referee.time_variants([SLOW, FAST], "relu2")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_faster_variant_is_seen_to_be_faster() -> None:
    with Referee() as referee:
        laps = referee.time_variants(
            [SLOW, FAST, SHORT, BROKEN, SLOW.replace("y = torch", "y = torch")], "relu2"
        )
    first, fast, short, broken, same = laps
    assert first.ratio == 1.0
    assert fast.us is not None and first.us is not None and fast.ratio is not None
    assert fast.us < first.us and fast.ratio > 1.2
    assert short.us is None and "elements" in short.refused
    assert broken.us is None and broken.refused
    assert same.ratio is not None and abs(same.ratio - 1) < 0.05
