"""Source to plans and kernels without a verdict; needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee import ops
from referee.gpu.compile_candidate import choose_autotune_config, compile_candidate
from referee.gpu.jobs import CompiledCandidate, pack_jobs, unpack_jobs
from referee.gpu.replayer import Replayer
from referee.problem import TaskName
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.verdict import Rejection

SOURCE = """
@triton.jit
def kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, mask=at < count).to(tl.float32), 0.0)
    tl.store(out + at, (value * value).to(out.dtype.element_ty), mask=at < count)


def run(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
CELLS = tuple(
    cell for cell in ops.cells(ops.get("relu2"), profile="gpu") if cell.role != "capability"
)[:2]
SINGLE = next(
    cell
    for cell in ops.cells(ops.get("relu2"), profile="gpu")
    if cell.outputs[0].dtype == "float32"
)


def test_a_candidate_is_ready_for_the_worker(workers: Workers, tmp_path: Path) -> None:
    found = compile_candidate(workers, SOURCE, TaskName("relu2"), CELLS, Target())
    assert isinstance(found, CompiledCandidate)
    assert [job.cell for job in found.jobs] == list(CELLS)
    assert all(job.binaries[0, 0].image.startswith(b"\x7fELF") for job in found.jobs)
    assert not found.atomics
    assert found.bench is found.jobs[0]
    assert unpack_jobs(*pack_jobs(found.jobs)) == list(found.jobs)
    assert choose_autotune_config(Replayer(device="cpu", cache=tmp_path), found, seed=1) is found


def test_atomic_kernels_are_marked(workers: Workers) -> None:
    atomic = SOURCE.replace(
        "tl.store(out + at, (value * value)", "tl.atomic_xchg(out + at, (value * value)"
    )
    found = compile_candidate(workers, atomic, TaskName("relu2"), [SINGLE], Target())
    assert isinstance(found, CompiledCandidate)
    assert found.atomics


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("def run(x:", "screen"),
        (SOURCE.replace("torch.empty_like(x)", "torch.relu(x)"), "trace"),
        (
            SOURCE.replace("tl.float32), 0.0)", "tl.float32), tl.zeros((3,), tl.float32))"),
            "compile",
        ),
    ],
)
def test_a_candidate_that_falls_before_the_gpu_is_a_rejection(
    workers: Workers, source: str, stage: str
) -> None:
    found = compile_candidate(workers, source, TaskName("relu2"), CELLS, Target())
    assert isinstance(found, Rejection)
    assert found.stage == stage
