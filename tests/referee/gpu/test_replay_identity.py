"""Replay gives the very bits that running the file gives: traced and compiled in the sandbox,
against plain Triton on the GPU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kmint_tui.graph.operations import catalogue_program
from kmint_tui.template.write import program_source
from referee import ops
from referee.gpu.compile_candidate import compile_candidate
from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replay_service import Loaded
from referee.ops.values import draw
from referee.plans.arena import NAN
from referee.problem import TaskName
from referee.replaying.driver import Driver
from referee.replaying.replay import Region, differ
from referee.replaying.replay_check import Host, outputs_of
from referee.sandbox.zygote import Workers
from referee.target import Target

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPS = (
    "rmsnorm softmax swiglu add_rmsnorm rope layernorm add_layernorm geglu qknorm_rope gelu silu relu2 bias_gelu reglu l2norm log_softmax "
    "softmax_scale layernorm_gelu add_rmsnorm_rope dequant_int8 softcap_softmax rmsnorm_gemma glu rope_interleaved cross_entropy "
    "rmsnorm_mish add_layernorm_silu cumsum entropy kl_div"
).split()


def imported(source: str, folder: Path) -> Callable[..., Any]:
    file = folder / "candidate.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("candidate", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Callable[..., Any] = module.run
    return run


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_bits_are_the_same(workers: Workers, tmp_path: Path, name: str, dtype: str) -> None:
    op = ops.get(name)
    program = catalogue_program(name)
    assert program is not None
    cells = [
        cell
        for cell in ops.cells(op, profile="gpu")
        if cell.role == "required" and cell.outputs[0].dtype == dtype
    ]
    if not cells:
        pytest.skip(f"{name} has no {dtype} cell")
    source = program_source(program)
    found = compile_candidate(workers, source, TaskName(name), cells[:2], Target.of_device())
    assert isinstance(found, CompiledCandidate), found
    host = Host("cuda", Driver(), lambda text, seconds, whose: None)
    run = imported(source, tmp_path)
    for job in found.jobs:
        inputs = draw(job.cell, 23, "cuda")
        expected = run(*inputs)
        with Loaded(host, job) as runner:
            region = Region(job.plan, "cuda")
            region.fill(inputs, NAN)
            runner.bind(region, {}).run(host.stream())
            host.wait()
            assert not bool(differ(outputs_of(region)[0], expected))
            assert region.damage() is None
