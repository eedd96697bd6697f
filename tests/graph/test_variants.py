"""The kernels that the template writes in each structure are right, and none is written twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import torch

from kmint_tui.graph.capture import Argument
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.graph.program import Program, at_shapes
from kmint_tui.graph.trace import trace
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source, structures_of
from kmint_tui.template.variants import untried, variants
from kmint_tui.template.write import program_source
from referee.gpu.replayer import Replayer
from referee.judge import Referee
from tests.sampling import sample


@pytest.fixture(scope="module")
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    """A referee for the CPU: that of all tests where there is no GPU."""
    if Replayer.available() is not None:
        yield request.getfixturevalue("shared_referee")
        return
    with Referee(mode="interpret") as made:
        yield made


def program(name: str) -> Program:
    found = catalogue_program(name)
    assert found is not None
    return found


def in_structure(made: Program, structure: Structure) -> str:
    assert structure in structures_of(made.stages[0])
    settings = Settings(block=512, elements=2048, programs=64, splits=4, warps="4")
    return program_source(made, {0: kernel_source(made.stages[0], structure, settings)})


@pytest.mark.parametrize(
    ("name", "structure"),
    [
        # A loop takes the maximum and the sum of exponentials in one pass.
        ("cross_entropy", "loop"),
        ("layernorm", "persist"),
        ("rope", "tile"),
        ("rope_interleaved", "pairs"),
        # The first launch stores sums around the means of parts.
        ("layernorm", "split"),
        ("cross_entropy", "split"),
    ],
)
def test_every_structure_is_right(referee: Referee, name: str, structure: Structure) -> None:
    verdict = referee.judge(in_structure(program(name), structure), name, level="correct")
    assert verdict.verdict == "correct", verdict.reason
    assert {one.name: one.status for one in verdict.checks}["batch_invariance"] != "fail"


def sums(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(-1, keepdim=True)).exp().sum(-1)


def logarithms(x: torch.Tensor) -> torch.Tensor:
    return x.logsumexp(-1)


def totals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.sum(), (x > 0.5).sum(), x / x.abs().amax()


def deviations(x: torch.Tensor) -> torch.Tensor:
    return x.var(-1)


def in_tritons_own_interpreter(source: str, check: str, folder: Path) -> None:
    """The test in a saved file runs there on a machine without a GPU."""
    file = folder / "kernel.py"
    file.write_text(source + check)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


INFINITIES = product(
    [
        (sums, "(x - x.amax(-1, keepdim=True)).exp().sum(-1)"),
        (logarithms, "x.logsumexp(-1)"),
    ],
    ["row", "persist", "loop", "split"],
)


@pytest.mark.parametrize(("asked", "structure"), sample(INFINITIES, start=1, step=3))
def test_rows_of_infinities_are_alike_in_tritons_own_interpreter(
    tmp_path: Path, structure: Structure, asked: tuple[Callable[..., torch.Tensor], str]
) -> None:
    function, wanted = asked
    made = trace("sums", function, [Argument("x", torch.ones(4, 2100))])
    check = f"""
x = torch.randn(5, 2100)
x[1], x[2, 3], x[3, :1600] = float("-inf"), float("inf"), float("-inf")
x[4, 6::512] = float("-inf")
want = {wanted}
assert torch.allclose(run(x), want, equal_nan=True), (run(x), want)
"""
    in_tritons_own_interpreter(in_structure(made, structure), check, tmp_path)


@pytest.mark.parametrize("structure", ["loop", "split"])
def test_nan_in_a_lane_of_its_own_is_not_lost(tmp_path: Path, structure: Structure) -> None:
    made = trace("sums", sums, [Argument("x", torch.ones(4, 1024))])
    check = """
x = torch.randn(2, 1024)
x[0, 6::512] = float("nan")
assert run(x).isnan().tolist() == [True, False], run(x)
"""
    in_tritons_own_interpreter(in_structure(made, structure), check, tmp_path)


def test_a_single_row_is_split(tmp_path: Path) -> None:
    """Sums of numbers and of truth values, and a maximum that the outputs need along the row."""
    made = trace("totals", totals, [Argument("x", torch.ones(2100))])
    assert [stage.has_rows for stage in made.stages] == [False]
    check = """
x = torch.randn(2700)
total, count, scaled = run(x)
assert torch.allclose(total, x.sum(), atol=1e-4) and count == (x > 0.5).sum(), (total, count)
assert torch.allclose(scaled, x / x.abs().amax())
"""
    in_tritons_own_interpreter(in_structure(made, "split"), check, tmp_path)


def test_parts_of_a_row_far_from_zero_keep_their_variance(tmp_path: Path) -> None:
    """Sums of squares would lose it: they are a billion times as large."""
    made = trace("deviations", deviations, [Argument("x", torch.ones(4, 2100))])
    check = """
torch.manual_seed(0)
x = 30000.0 + torch.randn(2, 2100)
x[1, 0] = -3e4
want = x.double().var(-1).float()
assert torch.allclose(run(x), want, rtol=1e-3), (run(x), want)
"""
    in_tritons_own_interpreter(in_structure(made, "split"), check, tmp_path)


def test_a_loop_reads_a_row_of_logits_once() -> None:
    source = in_structure(program("cross_entropy"), "loop")
    assert source.count("for start in range(0, N, BLOCK):") == 1


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32768, 1024), ("tile of 2048 elements", "whole row", "2048 persistent programs")),
        ((512, 131072), ("loop over blocks of 2048 columns", "loop over blocks of 16384 columns")),
        ((65536, 128), ("tile of 2048 elements", "tile of 16384 elements")),
        ((4, 131072), ("loop over blocks of 8192 columns", "rows in 128 splits by two launches")),
        ((64, 16384), ("whole row", "rows in 2 splits by two launches")),
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


def reasons(made: Program) -> dict[str, str]:
    return {one.words: one.reason for one in untried(made)}


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("softmax", (65, 131072), "more than 64 rows"),
        ("softmax", (1, 8192), "fewer than 16,384 columns"),
        ("entropy", (4, 131072), "reductions depend on each other"),
        ("cumsum", (4, 131072), "do not split `cumsum`"),
    ],
)
def test_rows_that_gain_nothing_are_not_split(
    name: str, shape: tuple[int, int], reason: str
) -> None:
    made = at_shapes(program(name), {"x": shape})
    assert reason in reasons(made)["split"]
    assert not any("splits" in one.words for one in variants(made))


def test_each_structure_of_a_stage_is_raced_or_has_a_reason() -> None:
    made = at_shapes(program("softmax"), {"x": (4, 131072)})
    raced = "; ".join(one.words for one in variants(made))
    assert set(reasons(made)) == {"tile", "row", "persist"}
    assert "loop" in raced and "splits" in raced


def test_a_grid_that_cuda_refuses_is_not_written() -> None:
    """A row of 67 million columns has more blocks than a second grid dimension."""

    def function(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return x + bias

    arguments = [Argument("x", torch.ones(3, 64)), Argument("bias", torch.ones(64))]
    made = trace("biased", function, arguments)
    usual = at_shapes(made, {"x": (3, 4096), "bias": (4096,)})
    long = at_shapes(made, {"x": (3, 2**26), "bias": (2**26,)})
    assert "(M, triton.cdiv(N, BLOCK))" in program_source(usual)
    assert "(M, triton.cdiv(N, BLOCK))" not in program_source(long)
    assert "65,535 blocks" in reasons(long)["grid"]
    assert [one.words for one in variants(long)] == ["flat blocks of 1024 elements"]


def test_stages_of_a_program_change_together() -> None:
    found = variants(program("rope_qk"))
    assert [one.words for one in found][:2] == ["tile of 1024 elements", "tile of 2048 elements"]
    assert found[0].source.count("1024 // BLOCK") == 2
