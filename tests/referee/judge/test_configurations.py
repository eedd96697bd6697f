"""Configurations that are not chosen: where they run, as which plans, and that a wrong one fails
the file on a GPU.
"""

from __future__ import annotations

from math import prod

import pytest

from referee import Referee, ops
from referee.compiling.binaries import Binary
from referee.gpu.jobs import ReplayJob, other_configurations
from referee.ops.spec import Cell
from referee.plans.autotune import representative_cells
from referee.plans.plan import Launch
from referee.problem import required
from tests.referee.plan.example import PLAN

MOST_ROWS = """@triton.autotune(configs=[triton.Config({{"KEPT": 1}}), triton.Config({{"KEPT": 0}})], key=["N"])
@triton.jit
def _kernel(x_ptr, out_ptr, M, N, KEPT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    y = x * tl.sigmoid(x)
    {slip}
    tl.store(out_ptr + row * N + cols, y, mask=cols < N)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, M, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
SLIPS = {
    "rows": "if KEPT == 0 and row > 3:\n        y = x",
    "precision": "if KEPT == 0:\n        y = y.to(tl.float16).to(tl.float32)",
    "first": "if KEPT == 1 and row > 3:\n        y = x",
    "even": "if KEPT == 0 and N % 2048 == 0:\n        y = x",
}


def binary(name: str) -> Binary:
    return Binary(
        kernel=name,
        key=name * 64,
        image=b"\x7fELF",
        name=name,
        shared=0,
        num_warps=4,
        registers=None,
        spills=None,
        parameters=(),
        paths=(),
    )


def test_other_configurations_run_at_rows_of_every_dtype() -> None:
    """Other configurations run at several rows of every dtype at the widest and at most rows."""
    for profile in ("cpu", "gpu"):
        cells = required(ops.cells(ops.get("silu"), profile=profile))
        chosen = representative_cells(cells)
        shapes = [cell.inputs[0].shape for cell in chosen]
        assert shapes[0][-1] == max(cell.inputs[0].shape[-1] for cell in cells)
        assert shapes[1][0] == max(cell.inputs[0].shape[0] for cell in cells)
        assert shapes[2][0] > 1 and shapes[2][-1] % 4096 == 0 and prod(shapes[2]) <= 1 << 16
        assert {cell.inputs[0].dtype for cell in chosen[3:]} == {"float16", "bfloat16", "float32"}
        assert all(
            rows >= 5 and columns >= 64 and rows * columns <= 100_000
            for rows, columns in shapes[3:]
        )


def test_and_at_three_that_nobody_knows() -> None:
    cells = required(ops.cells(ops.get("silu"), profile="gpu"))
    usual = representative_cells(cells)
    secret = [representative_cells(cells, seed)[len(usual) :] for seed in range(40)]
    assert all(representative_cells(cells, seed)[: len(usual)] == usual for seed in range(5))
    assert {len(some) for some in secret} == {3} and not {
        cell for some in secret for cell in some
    } & set(usual)
    assert {cell for some in secret for cell in some} == set(cells) - set(usual)


def test_every_unchosen_configuration_gets_its_own_plan(one_cell: Cell) -> None:
    both = {(2, 0): binary("a"), (2, 1): binary("b"), (3, 0): binary("c")}
    job = ReplayJob(one_cell, PLAN, both)
    ((which, (other,)),) = other_configurations([job], {2: 1}, 1)
    launch = other.plan.steps[2]
    assert which == 0 and isinstance(launch, Launch) and isinstance(PLAN.steps[2], Launch)
    assert (
        launch.configs == PLAN.steps[2].configs[:1]
        and other.plan.steps[3] == PLAN.steps[3]
        and other.cell is one_cell
    )
    assert other.binaries == {(2, 0): both[2, 0], (3, 0): both[3, 0]}
    assert [number for number, _ in other_configurations([job], {}, 1)] == [1]
    assert not list(
        other_configurations(
            [ReplayJob(one_cell, PLAN, {(2, 1): both[2, 1], (3, 0): both[3, 0]})], {}, 1
        )
    )


@pytest.fixture
def one_cell() -> Cell:
    """The smallest that has several rows."""
    return representative_cells(required(ops.cells(ops.get("silu"), profile="cpu")))[-1]


@pytest.mark.sweep
@pytest.mark.parametrize("slip", SLIPS)
def test_without_a_gpu_a_wrong_configuration_fails(referee: Referee, slip: str) -> None:
    verdict = referee.judge(MOST_ROWS.format(slip=SLIPS[slip]), "silu", level="correct")
    assert verdict.guard == "wrong_answer", (verdict.verdict, verdict.reason)


@pytest.mark.gpu
def test_a_wrong_configuration_fails_whichever_is_chosen() -> None:
    with Referee(mode="replay") as judge:
        for name, slip in SLIPS.items():
            verdict = judge.judge(MOST_ROWS.format(slip=slip), "silu", level="correct")
            assert verdict.guard == "wrong_answer", (name, verdict.verdict, verdict.reason)
        verdict = judge.judge(MOST_ROWS.format(slip="pass"), "silu", level="correct")
        assert verdict.passed, verdict.reason
