"""Baselines: inductor's autotuner picks several times, each time for itself; what failed for want
of memory is tried again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.handmade import bench_cell
from referee.ops.spec import Cell
from referee.ops.task import Task, load
from referee.timing import baselines
from referee.timing.baselines import CACHE_VARIABLE, PICKS, BaselineStore, picks_of
from referee.timing.measurement import AUTOTUNE, COMPILE, EAGER
from referee.timing.rounds import Flush

OP = "rmsnorm"


def never() -> Flush:
    raise AssertionError("there is one build, and nothing to choose")


def test_each_build_has_inductor_s_caches_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "inductor"))
    for number in range(3):
        with picks_of(number):
            baselines.compiled(load("relu2", "cpu"), None)(torch.ones(64))
    for folder in ("inductor-pick0", "inductor-pick1", "inductor-pick2"):
        assert list((tmp_path / folder).rglob("*.py")), f"nothing was built in {folder}"
    with pytest.raises(ValueError, match="broken"), picks_of(1):
        raise ValueError("broken")
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "inductor")


def test_a_baseline_for_which_memory_was_short_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program may have held the memory for a moment."""
    tries = 0

    def build(task: Task, cell: Cell, name: str, inputs: Sequence[torch.Tensor]) -> Any:
        nonlocal tries
        tries += name == COMPILE
        if name == COMPILE and tries == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return "not on this machine" if name == AUTOTUNE else task.eager

    monkeypatch.setattr(baselines, "_build", build)
    monkeypatch.setattr("referee.ops.task.draw", lambda cell, seed, device: [])
    store = BaselineStore(lambda text, seconds: None, never)
    first = store.get(load(OP, "cpu"), OP, bench_cell(OP))
    assert first.missing == {
        COMPILE: "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        AUTOTUNE: "not on this machine",
    }
    second = store.get(load(OP, "cpu"), OP, bench_cell(OP))
    assert set(second.ready) == {EAGER, COMPILE} and second.missing == {
        AUTOTUNE: "not on this machine"
    }
    assert store.get(load(OP, "cpu"), OP, bench_cell(OP)).ready == second.ready and tries == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_autotuner_picks_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "inductor"))
    flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
    store = BaselineStore(lambda text, seconds: None, lambda: flush)
    found = store.get(load(OP, "gpu"), OP, bench_cell(OP))
    assert set(found.ready) == {EAGER, COMPILE, AUTOTUNE} and not found.missing
    assert found.kernels[EAGER] and all(
        any(name.startswith("triton_") for name in found.kernels[which])
        for which in (COMPILE, AUTOTUNE)
    )
    for number in range(PICKS[AUTOTUNE]):
        folder = tmp_path / (f"inductor-{number}" if number else "inductor")
        assert list(folder.rglob("*.best_config")), f"nothing was picked in {folder.name}"
