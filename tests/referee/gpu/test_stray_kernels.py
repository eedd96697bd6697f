"""Stray reads and writes, unwritten memory, races and endless kernels: each falls to its guard.

The verdicts after each of them are right: a good kernel passes, and a wrong one is rejected for its
own fault. The CPU path checks every address and names stray reads. On a GPU the NaN between the
buffers shows them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from referee.judge import Referee
from referee.replaying.replay_check import CANDIDATE_SECONDS
from referee.selftest.corpus import load
from tests.referee.gpu.stray_kernels import RIGHT, STRAYS

WRONG = RIGHT.replace("x * tl.sigmoid(x)", "tl.sigmoid(x)")
RACES = [one for one in load("wrong") if one.name in ("l2norm_racing_pieces", "layernorm_race")]
RESTART_SECONDS = 60.0
"""For ending a lost worker and starting another; what a kernel itself may take is
CANDIDATE_SECONDS.
"""


@pytest.fixture(scope="module")
def on_gpu() -> Iterator[Referee]:
    with Referee(mode="replay") as opened:
        assert opened.judge(RIGHT, "silu", level="correct").passed
        yield opened


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name, stray in STRAYS.items() if stray.cpu])
def test_on_the_cpu_each_falls_to_its_guard(referee: Referee, name: str) -> None:
    verdict = referee.judge(STRAYS[name].source, "silu", level="correct")
    assert verdict.verdict == "rejected" and verdict.guard in STRAYS[name].cpu, verdict.reason


def test_the_kernels_differ_from_a_right_one_only_in_that(referee: Referee) -> None:
    assert referee.judge(RIGHT, "silu", level="correct").passed
    assert referee.judge(WRONG, "silu", level="correct").guard == "wrong_answer"
    for name, stray in STRAYS.items():
        found = referee.judge(stray.source, "silu", level="compile")
        assert found.survived, (name, found.reason)


@pytest.mark.gpu
@pytest.mark.parametrize("name", STRAYS)
def test_each_falls_to_its_guard_on_a_gpu_and_the_next_is_right(on_gpu: Referee, name: str) -> None:
    begun = time.monotonic()
    verdict = on_gpu.judge(STRAYS[name].source, "silu", level="correct")
    spent = time.monotonic() - begun
    assert verdict.verdict == "rejected" and verdict.guard in STRAYS[name].gpu, (
        verdict.guard,
        verdict.reason,
    )
    assert spent < CANDIDATE_SECONDS + RESTART_SECONDS
    following = on_gpu.judge(RIGHT, "silu", level="correct")
    assert following.passed and following.mode == "replay", following.reason
    if verdict.guard in ("out_of_bounds", "timeout"):
        assert on_gpu.judge(WRONG, "silu", level="correct").guard == "wrong_answer"


@pytest.mark.gpu
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_on_a_gpu_races_are_seen(on_gpu: Referee, race: object) -> None:
    specimen = next(one for one in RACES if one is race)
    verdict = on_gpu.judge(specimen.source, specimen.op, level="correct")
    assert verdict.verdict == "rejected" and verdict.guard in {
        *specimen.expected("replay"),
        "not_deterministic",
        "wrong_answer",
    }
    assert on_gpu.judge(RIGHT, "silu", level="correct").passed
