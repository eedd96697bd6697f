"""Every verdict of an operation has as many cases as any other, and says how many it had."""

from __future__ import annotations

import pytest

from referee.asked_shape import feasible
from referee.cases import FEW_ROWS, Kind, beside_replay, replayed, without_gpu
from referee.ops import catalogue, get
from referee.ops.fresh_widths import wide_cells
from referee.problem import Problem, TaskName
from referee.verdict import Verdict
from tests.referee.stand_in import SEED, SOURCE, Replayer, Servers, judged
from tests.sampling import repeats

SEEDS = repeats(3, 8)


@pytest.mark.parametrize("kind", [without_gpu, replayed, beside_replay])
def test_every_seed_draws_as_many_cases(kind: Kind) -> None:
    """And no two of them have the same name, so that none is counted twice or lost."""
    for op in catalogue():
        lists = [kind(Problem(op.name), seed) for seed in SEEDS]
        assert (
            len({(len(cases.fixed), len(cases.drawn), len(cases.capabilities)) for cases in lists})
            == 1
        ), op.name
        assert all(
            len({case.name for case in cases.required}) == len(cases.required) for cases in lists
        ), op.name


def test_a_replayed_verdict_says_its_numbers(servers: Servers) -> None:
    report, verdict = judged(servers, SOURCE, Replayer())
    assert isinstance(verdict, Verdict)
    problem = Problem("silu")
    large, small = (len(kind(problem, SEED).required) for kind in (replayed, beside_replay))
    assert verdict.reason.startswith(f"{large} ")
    assert (
        report.checks["trace"].detail == f"{large} cases traced twice each, and {small} small ones"
    )
    assert report.checks["interpreted"].detail.startswith(f"{small} ")
    assert len([cell for cell in verdict.cells if cell.role != "capability"]) == large
    assert len(verdict.cells) - large == len(replayed(problem, SEED).capabilities)


def test_a_kernel_to_be_saved_meets_long_rows(servers: Servers) -> None:
    report, verdict = judged(servers, SOURCE, Replayer(), TaskName("silu", wide=True))
    assert isinstance(verdict, Verdict)
    long = {cell.name for cell in report.cells if "-wide-x" in cell.name and cell.status == "pass"}
    assert long == {cell.name for cell in wide_cells(get("silu"))}


@pytest.mark.parametrize("op", ["softmax", "rope", "rmsnorm_wide", "cross_entropy"])
def test_small_cases_have_dozens_of_rows_or_long_rows(op: str) -> None:
    """More columns than the usual blocks have, but for rotations."""
    cases = beside_replay(Problem(op), SEED).required
    assert all(map(feasible, cases))
    fixed = [case.inputs[0].shape[0] for case in cases if "-fresh-" not in case.name]
    assert max(fixed) <= FEW_ROWS < max(case.inputs[0].shape[0] for case in cases)
    assert {case.inputs[0].dtype for case in cases} == {"float32", "float16", "bfloat16"}
    assert op == "rope" or max(case.inputs[0].shape[1] for case in cases) > 16384
