"""The replay worker's requests in this process: what a GPU with too little free memory is answered
with.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any, cast

import pytest
import torch

from referee.gpu import replay_service
from referee.gpu.jobs import ReplayJob, pack_jobs
from referee.gpu.replay_service import Service
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.problem import TaskName
from referee.replaying.driver import Driver
from referee.timing.baselines import Baselines
from tests.referee.gpu.test_worker_process import cell_of, launching_plan

CELL = cell_of("relu2", "f32-37x4097")


def request() -> dict[str, Any]:
    """To check one cell with a plan whose kernel was never compiled."""
    jobs, _ = pack_jobs([ReplayJob(CELL, launching_plan(CELL), {})])
    return {
        "do": "check",
        "task": asdict(TaskName("relu2")),
        "jobs": jobs,
        "seed": 1,
        "choice": {},
        "atomics": False,
    }


def told(service: Service) -> None:
    found = service.answer(request(), [])
    assert found["ends"]
    assert "too little free memory" in found["broken"]
    assert "out of memory" in found["broken"]


def test_too_little_memory_is_an_answer_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def draw(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    monkeypatch.setattr("referee.ops.task.draw", draw)
    told(Service("cpu", lambda *_: None))


class Store:
    """Baselines that need no GPU; the first request for a cell builds."""

    built = 0

    def get(self, task: Task, key: str, cell: Cell, *, graphed: bool) -> Baselines:
        self.built = 1
        return Baselines({}, {}, {})


def test_what_a_build_loads_is_left_out_of_garbage_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    for name in ("collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    monkeypatch.setattr(replay_service, "compile_own", lambda *_: None)
    service = Service("cpu", lambda *_: None)
    monkeypatch.setattr(service, "_baselines", Store())
    monkeypatch.setattr(service, "_flushing", lambda: None)
    warm = {"do": "warm", "task": asdict(TaskName("relu2")), "cell": asdict(CELL), "graphed": False}
    for _ in range(2):
        assert service.answer(warm, []) == {"ready": [], "missing": {}, "seconds": {}}
        assert done == ["collect", "freeze"]


def test_compilers_are_loaded_once_and_only_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(replay_service, "load_compilers", lambda: done.append("loaded"))
    service = Service("cpu", lambda *_: None)
    service.ahead()
    assert done == []
    service.host = replace(service.host, driver=cast(Driver, object()))
    service.ahead()
    service.ahead()
    assert done == ["loaded"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_compilers_are_loaded() -> None:
    """In a process without them, as a replay worker is."""
    code = (
        "import sys\n"
        "from referee.gpu.replay_service import Service\n"
        "service = Service('cuda', lambda *_: None)\n"
        "assert 'torch._inductor.runtime.triton_heuristics' not in sys.modules\n"
        "service.ahead()\n"
        "from torch._dynamo.utils import counters\n"
        "assert counters['stats']['unique_graphs'] == 1, dict(counters)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def filled() -> list[torch.Tensor]:
    """Tensors that leave nothing of what this process may use, nor of what it was given for earlier
    ones and kept.
    """
    held, size = [], 1 << 26
    while size >= 512:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


@pytest.mark.gpu
def test_a_gpu_that_is_full_is_told_of() -> None:
    service = Service("cuda", lambda *_: None)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-4)
    held = filled()
    try:
        told(service)
    finally:
        held.clear()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)
