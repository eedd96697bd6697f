"""The kernels that the template writes in each structure are right, and none is written twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kmint_tui.graph.capture import Argument
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.graph.program import Program, at_shapes
from kmint_tui.graph.trace import trace
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source, structures_of
from kmint_tui.template.variants import variants
from kmint_tui.template.write import program_source
from referee.judge import Referee


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    with Referee(cache=tmp_path_factory.mktemp("referee"), mode="interpret") as made:
        yield made


def program(name: str) -> Program:
    found = catalogue_program(name)
    assert found is not None
    return found


def in_structure(made: Program, structure: Structure) -> str:
    assert structure in structures_of(made.stages[0])
    settings = Settings(block=512, elements=2048, programs=64, warps="4")
    return program_source(made, {0: kernel_source(made.stages[0], structure, settings)})


@pytest.mark.parametrize(
    ("name", "structure"),
    [
        # A loop takes the maximum and the sum of exponentials in one pass.
        ("softmax", "loop"),
        ("cross_entropy", "loop"),
        ("layernorm", "persist"),
        ("rope", "tile"),
        ("rope_interleaved", "pairs"),
    ],
)
def test_every_structure_is_right(referee: Referee, name: str, structure: Structure) -> None:
    verdict = referee.judge(in_structure(program(name), structure), name, level="correct")
    assert verdict.verdict == "correct", verdict.reason


def sums(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(-1, keepdim=True)).exp().sum(-1)


@pytest.mark.parametrize("structure", ["row", "persist", "loop"])
def test_rows_of_infinities_are_alike_in_tritons_own_interpreter(
    tmp_path: Path, structure: Structure
) -> None:
    """The test in a saved file runs there on a machine without a GPU."""
    rows = torch.ones(4, 700)
    made = trace("sums", sums, [Argument("x", rows)])
    file = tmp_path / "kernel.py"
    check = """
x = torch.randn(4, 700)
x[1], x[2, 3], x[3, :600] = float("-inf"), float("inf"), float("-inf")
want = (x - x.amax(-1, keepdim=True)).exp().sum(-1)
assert torch.allclose(run(x), want, equal_nan=True), (run(x), want)
"""
    file.write_text(in_structure(made, structure) + check)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_a_loop_reads_a_row_of_logits_once() -> None:
    source = in_structure(program("cross_entropy"), "loop")
    assert source.count("for start in range(0, N, BLOCK):") == 1


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32768, 1024), ("tile of 2048 elements", "whole row", "2048 persistent programs")),
        ((512, 131072), ("loop over blocks of 2048 columns", "loop over blocks of 16384 columns")),
        ((1, 4096), ("whole row", "loop over blocks of 2048 columns")),
    ],
)
def test_the_shape_decides_which_structures_race(
    shape: tuple[int, int], expected: tuple[str, ...]
) -> None:
    found = variants(at_shapes(program("softmax"), {"x": shape}))
    words = "; ".join(one.words for one in found)
    assert all(one in words for one in expected), words
    assert len({one.source for one in found}) == len(found) <= 10


def test_stages_of_a_program_change_together() -> None:
    found = variants(program("rope_qk"))
    assert [one.words for one in found][:2] == ["tile of 1024 elements", "tile of 2048 elements"]
    assert found[0].source.count("1024 // BLOCK") == 2
