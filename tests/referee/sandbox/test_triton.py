"""The sandbox lets through what the judge's workers need: torch, triton's compiler with ptxas, and
its interpreter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from referee.sandbox.zygote import Limits, Zygote
from referee.versions import check_triton, facts
from tests.referee.sandbox.support import HOSTILE, descendants

ROOMY = Limits(seconds=120.0, memory_bytes=4 << 30, output_bytes=1 << 16)


def ptxas() -> str:
    spec = find_spec("triton")
    assert spec is not None and spec.origin is not None
    newer = facts(check_triton()).blackwell_assembler_from <= 90
    name = "ptxas-blackwell" if newer else "ptxas"
    return str(Path(spec.origin).parent / "backends/nvidia/bin" / name)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Zygote]:
    with Zygote(extra_path=(str(HOSTILE),)) as zygote:
        yield zygote


def test_a_kernel_compiles_with_ptxas(compiler: Zygote) -> None:
    limits = Limits(ROOMY.seconds, ROOMY.memory_bytes, ROOMY.output_bytes, (ptxas(),))
    outcome = compiler.run("hostile_triton:compile_kernel", b"", limits=limits)
    assert (outcome.status, outcome.data) == ("ok", b"\x7fELF"), outcome.detail


def test_the_compiler_cannot_run_ptxas_without_the_right(compiler: Zygote) -> None:
    outcome = compiler.run("hostile_triton:compile_kernel", b"", limits=ROOMY)
    assert outcome.status == "crash"
    assert "PermissionError" in outcome.detail


def test_the_preloaded_server_has_every_layer_and_sees_no_gpu(
    compiler: Zygote, zygote: Zygote
) -> None:
    outcome = compiler.run("hostile_triton:look_around", b"", limits=ROOMY)
    assert json.loads(outcome.data) == {
        "loaded": ["torch", "triton", "triton.language"],
        "cuda": False,
        "interpret": None,
    }
    for server in descendants(compiler.pid):
        assert len(os.listdir(f"/proc/{server}/task")) == 1
    assert [(p.name, p.active) for p in compiler.protections] == [
        (p.name, p.active) for p in zygote.protections
    ]


def test_a_kernel_runs_in_the_interpreter() -> None:
    with Zygote(interpret=True, extra_path=(str(HOSTILE),)) as zygote:
        outcome = zygote.run("hostile_triton:interpret_kernel", b"", limits=ROOMY)
        assert outcome.status == "ok", outcome.detail
        assert json.loads(outcome.data) == [1.0] * 10
        look = json.loads(zygote.run("hostile_triton:look_around", b"", limits=ROOMY).data)
        assert look["interpret"] == "1"
