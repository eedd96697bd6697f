"""Long rows of every verdict: vocabularies for operations on logits, and three rows at a time."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from referee import ops
from referee.asked_shape import feasible
from referee.cases import replayed
from referee.ops import get
from referee.ops.fresh_cells import DTYPES
from referee.ops.fresh_widths import VOCABULARIES, fresh_long, wide_cells
from referee.ops.signatures import ROPE_KINDS
from referee.problem import Problem

SEEDS = range(120)
LOGITS = ("softmax", "softmax_scale", "log_softmax", "cross_entropy", "entropy", "kl_div")


@pytest.mark.parametrize("name", LOGITS)
def test_verdicts_on_logits_have_the_widest_vocabulary(name: str) -> None:
    op = ops.get(name)
    widths, dtypes = set(), set()
    for seed in SEEDS:
        found = fresh_long(op, seed)
        assert found == fresh_long(op, seed) and all(map(feasible, found))
        (widest,) = (cell for cell in found if "-vocabulary-x" in cell.name)
        assert widest.inputs[0].shape == (1, VOCABULARIES[-1]) and widest.role == "required"
        dtypes.add(widest.inputs[0].dtype)
        # Rounding may hide a sum of too few bits in one row, and in half dtypes.
        two = [cell for cell in found if cell.inputs[0].shape == (2, VOCABULARIES[-1] // 2)]
        assert [cell.inputs[0].dtype for cell in two] == ["float32"]
        widths |= {cell.inputs[0].shape[1] for cell in found}
    assert dtypes == set(DTYPES)
    assert set(VOCABULARIES) < widths


@pytest.mark.parametrize("name", ["rmsnorm", "swiglu", "rmsnorm_wide"])
def test_elsewhere_three_rows_are_longer_than_seventeen_thousand(name: str) -> None:
    shapes, dtypes = [], set()
    for seed in SEEDS:
        (cell,) = fresh_long(ops.get(name), seed)
        shapes.append(cell.inputs[0].shape)
        dtypes.add(cell.inputs[0].dtype)
        assert feasible(cell)
    assert {rows for rows, _ in shapes} == {3} and min(columns for _, columns in shapes) > 17_000
    assert dtypes == set(DTYPES)
    tiles = [columns & -columns for _, columns in shapes]
    assert sum(tile >= 256 for tile in tiles) > 20 and sum(tile < 16 for tile in tiles) > 30


def test_a_fixed_case_has_three_such_rows_too_but_for_heads() -> None:
    for op in ops.catalogue():
        if op.kind in ROPE_KINDS or op.is_function or op.regime == "wide":
            continue
        shapes = [
            cell.inputs[0].shape for cell in ops.cells(op, profile="cpu") if cell.role == "required"
        ]
        assert any(shape[0] >= 3 and shape[1] > 17_000 for shape in shapes if len(shape) == 2), (
            op.name
        )
        assert all(prod(shape) <= 1 << 18 for shape in shapes), op.name


def test_heads_and_functions_have_none() -> None:
    assert not fresh_long(ops.get("rope"), 1)
    assert not fresh_long(replace(ops.get("rmsnorm"), kind="function"), 1)


def test_a_gpu_replays_long_rows_only_for_a_kernel_to_be_saved() -> None:
    problem = Problem("cross_entropy")
    usual, wide = (replayed(problem, 3, wide=one).capabilities for one in (False, True))
    more = {cell.inputs[0].shape[1] for cell in set(wide) - set(usual)}
    assert more == {16_384, 33_001, *VOCABULARIES} and set(usual) < set(wide)
    assert not wide_cells(get("rope"))
