"""The replay worker's requests in this process: what a GPU with too little free memory is answered with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from referee.device.jobs import CellJob, TaskName, pack_jobs
from referee.device.replay_service import Service
from tests.referee.gpu.test_worker_process import cell_of, launching_plan

CELL = cell_of("relu2", "f32-37x4097")


def request() -> dict[str, Any]:
    """To check one cell with a plan whose kernel was never compiled."""
    jobs, _ = pack_jobs([CellJob(CELL, launching_plan(CELL), {})])
    return {"do": "check", "task": asdict(TaskName("relu2")), "jobs": jobs, "seed": 1, "choice": {}, "atomics": False}


def told(service: Service) -> None:
    found = service.answer(request(), [])
    assert found["ends"]
    assert "too little free memory" in found["broken"]
    assert "out of memory" in found["broken"]


def test_too_little_memory_is_an_answer_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    monkeypatch.setattr("referee.ops.task.draw", draw)
    told(Service("cpu", lambda *_: None))


@pytest.mark.gpu
def test_a_gpu_that_is_full_is_told_of() -> None:
    service = Service("cuda", lambda *_: None)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        told(service)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
