"""Hand-written kernels through the replay worker on a real GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer
from referee.judge import Referee
from referee.ops.values import draw
from referee.plans.arena import HUGE, second_fill_pattern
from referee.selftest.corpus import load
from referee.target import Target
from referee.timing.measurement import CANDIDATE, FLOOR, ChosenConfigs, Timing, TimingOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SHORT = TimingOptions(least_rounds=40, most_rounds=80)
# 28 GiB for two tensors of 2^31 halves and what lies before them, and at most seven tenths of what
# is free are taken for that.
ROOM_TO_WRAP = 48 << 30


@pytest.fixture(scope="module")
def handmade() -> Any:
    from bench import handmade as module

    return module


@pytest.fixture(scope="module")
def replayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayer]:
    with Replayer(cache=tmp_path_factory.mktemp("cache")) as found:
        yield found


@pytest.fixture(scope="module")
def arch() -> int:
    return Target.of_device().arch


@pytest.mark.parametrize("kernel", ["rmsnorm", "softmax", "relu2"])
def test_right_kernels_pass_every_required_cell(
    handmade: Any, replayer: Replayer, arch: int, kernel: str
) -> None:
    cells = tuple(cell for cell in handmade.usable_cells(kernel) if cell.role != "capability")
    found = replayer.check(handmade.prepared(kernel, kernel, cells, arch=arch), seed=11)
    assert found.rejection is None
    assert {result.status for result in found.cells} == {"pass"}


@pytest.mark.parametrize(
    ("kernel", "guard"),
    [
        ("wrong_formula", "wrong_answer"),
        ("beyond_the_end", "guard_band"),
        ("writes_its_input", "input_mutated"),
        ("reads_what_nobody_wrote", "not_deterministic"),
        ("far_outside", "out_of_bounds"),
        ("never_ends", "timeout"),
    ],
)
def test_wrong_kernels_fall_and_the_next_one_is_judged_right(
    handmade: Any, replayer: Replayer, arch: int, kernel: str, guard: str
) -> None:
    cell = handmade.small_cell("relu2")
    # A name by which the second run meets memory that the kernel shows.
    names = (f"{cell.name}-{number}" for number in range(99))
    cells = (replace(cell, name=next(name for name in names if second_fill_pattern(name) is HUGE)),)
    found = replayer.check(handmade.prepared(kernel, "relu2", cells, arch=arch), seed=12)
    assert found.rejection is not None
    assert found.rejection.guard == guard
    assert (
        replayer.check(handmade.prepared("relu2", "relu2", cells, arch=arch), seed=13).rejection
        is None
    )


@pytest.mark.parametrize("kernel", ["rmsnorm", "softmax", "relu2"])
def test_replay_gives_the_bits_of_a_direct_launch(handmade: Any, arch: int, kernel: str) -> None:
    from referee.gpu.replay_service import Loaded
    from referee.plans.arena import NAN
    from referee.replaying.driver import Driver
    from referee.replaying.replay import Region, differ
    from referee.replaying.replay_check import Host, outputs_of

    cell = handmade.bench_cell(kernel)
    inputs = draw(cell, 14, "cuda")
    expected = handmade.direct(kernel)(*inputs)
    host = Host("cuda", Driver(), lambda text, seconds, whose: None)
    job = handmade.job(kernel, cell, arch=arch)
    with Loaded(host, job) as runner:
        region = Region(job.plan, "cuda")
        region.fill(inputs, NAN)
        runner.bind(region, {}).run(host.stream())
        host.wait()
        assert not bool(differ(outputs_of(region)[0], expected))
        assert region.damage() is None


def test_timing_reports_all_contestants(handmade: Any, replayer: Replayer, arch: int) -> None:
    found = replayer.time(
        handmade.prepared("softmax", "softmax", (handmade.bench_cell("softmax"),), arch=arch),
        seed=15,
        options=SHORT,
    )
    assert isinstance(found, Timing)
    assert set(found.device) | set(found.missing) >= {
        CANDIDATE,
        "eager",
        "compile",
        "max-autotune-no-cudagraphs",
        FLOOR,
    }
    assert found.decision in ("win", "tie", "loss", "unsure")
    assert found.flush_bytes >= 3 * found.l2_bytes
    assert found.environment["torch"] == str(torch.__version__)


@pytest.mark.parametrize("kernel", ["wrong_formula", "leaves_calls_out"])
def test_a_candidate_whose_timed_outputs_are_wrong_has_no_time(
    handmade: Any, replayer: Replayer, arch: int, kernel: str
) -> None:
    prepared = handmade.prepared(kernel, "relu2", (handmade.bench_cell("relu2"),), arch=arch)
    found = replayer.time(prepared, seed=16, options=SHORT)
    assert not isinstance(found, Timing)
    assert (found.stage, found.guard) == ("timing", "timed_output")


def test_tuning_freezes_the_configuration_that_is_checked(
    handmade: Any, replayer: Replayer, arch: int
) -> None:
    cells = (handmade.bench_cell("softmax"),)
    several = handmade.prepared("softmax", "softmax", cells, arch=arch, warps=handmade.WARPS)
    found = replayer.tune(several, seed=17)
    assert isinstance(found, ChosenConfigs)
    assert set(found.times[0]) == set(range(len(handmade.WARPS)))
    frozen = CompiledCandidate(several.task, several.jobs, choice=found.choice)
    assert replayer.check(frozen, seed=18).rejection is None


def test_a_worker_killed_in_the_middle_costs_no_verdict(
    handmade: Any, replayer: Replayer, arch: int
) -> None:
    prepared = handmade.prepared("softmax", "softmax", (handmade.bench_cell("softmax"),), arch=arch)
    replayer.environment()
    pid = replayer.pid
    assert pid is not None
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(replayer.check(prepared, seed=19)))
    asking.start()
    os.kill(pid, signal.SIGKILL)
    asking.join()
    assert answers[0].rejection is None


def test_a_worker_with_nothing_to_do_gives_its_memory_back(
    handmade: Any, replayer: Replayer, arch: int
) -> None:
    prepared = handmade.prepared("softmax", "softmax", (handmade.bench_cell("softmax"),), arch=arch)
    assert replayer.check(prepared, seed=20).rejection is None
    free_then, deadline = torch.cuda.mem_get_info()[0], time.monotonic() + 60
    while torch.cuda.mem_get_info()[0] < free_then + (100 << 20):
        assert time.monotonic() < deadline
    assert replayer.check(prepared, seed=21).rejection is None


def skip_without_room_to_wrap() -> None:
    if torch.cuda.mem_get_info()[0] < ROOM_TO_WRAP:
        pytest.skip(
            "others hold the GPU's memory: without room before the buffers an offset that wraps costs the context"
        )


def test_offsets_that_wrap_fail_and_cost_no_context(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    skip_without_room_to_wrap()
    specimen = next(one for one in load("gold") if one.name == "row_rmsnorm")
    with Referee(cache=tmp_path_factory.mktemp("wrapping")) as referee:
        verdict = referee.judge(specimen.source, specimen.op, level="correct")
        assert referee._replayer is not None
        started = [
            worker.started for worker in (referee._replayer._first, referee._replayer._earning)
        ]
    skip_without_room_to_wrap()
    assert verdict.verdict == "correct" and max(started) == 1
    large = next(cell for cell in verdict.cells if "large" in cell.name)
    assert large.status == "fail" and ("int64" in large.detail or "nan" in large.detail), large
