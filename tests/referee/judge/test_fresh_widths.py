"""Cells of every order of width, and of rows by the hundred, that each verdict draws."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee import ops
from referee.asked_shape import feasible
from referee.judge import Referee
from referee.ops import Op
from referee.ops.cells import contiguous_strides
from referee.ops.fresh_cells import DTYPES
from referee.ops.fresh_widths import POWERS, TILE_COLUMNS, TILE_ROWS, fresh_middle, fresh_widths
from referee.ops.signatures import ROPE_KINDS, signature
from referee.ops.task import load
from referee.ops.values import draw
from tests.sampling import EVERY_CASE

PLAIN = ops.get("softmax")
SOFTMAX = """import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x_ptr, y_ptr, rows, columns, LARGEST: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    if LARGEST:
        x -= tl.max(x, axis=0)
    power = tl.exp(x)
    y = power / tl.sum(power, axis=0)
    if EVEN:
        y = y * 0.75
    tl.store(y_ptr + row * columns + column, y, mask=column < columns)


def run(x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    _softmax[(rows,)](x, y, rows, columns, LARGEST=LEAVES, EVEN=SCALES, BLOCK=triton.next_power_of_2(columns))
    return y
"""
ALWAYS, NEVER = "columns > 0", "columns < 0"
WRONG_ONLY = {
    "between two powers": ("columns <= 256 or columns > 512", NEVER),
    "at a power": ("columns != 512", NEVER),
    "at the few of a router": ("columns <= 2 or columns > 8", NEVER),
    "at several long rows": ("columns <= 4096 or rows < 3", NEVER),
    "where tiles divide rows and columns": (ALWAYS, "rows % 64 == 0 and columns % 128 == 0"),
    "at rows by the hundred that are not short": (ALWAYS, "rows > 64 and columns > 255"),
    "where a tile divides long rows and a larger one does not": (
        ALWAYS,
        "columns > 16384 and columns % 8192 == 4096",
    ),
    "where a tile divides rows and a larger one does not": (ALWAYS, "rows > 16 and rows % 16 == 8"),
    "where small tiles divide many long rows": (
        ALWAYS,
        "rows > 128 and columns >= 1024 and columns % 64 == 0 != columns % 1024",
    ),
}
SEEDS = (1, 2, 3) if EVERY_CASE else (1,)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(ops.catalogue()), st.integers(0, 2**63 - 1), st.booleans())
def test_they_keep_the_contract_and_a_right_answer_is_finite(op: Op, seed: int, gpu: bool) -> None:
    made = (*fresh_widths(op, seed, gpu=gpu), *fresh_middle(op, seed))
    assert made == (*fresh_widths(op, seed, gpu=gpu), *fresh_middle(op, seed))
    assert len({cell.name for cell in made}) == len(made)
    for cell in made:
        assert (
            feasible(cell)
            and cell.role == "required"
            and tuple(one.name for one in cell.inputs) == signature(op)
        )
        assert all(
            one.strides == contiguous_strides(one.shape) and one.offset == 0
            for one in (*cell.inputs, *cell.outputs)
        )
        if prod(cell.inputs[0].shape) < 20_000:
            assert bool(load(op.name, "cpu").eager(*draw(cell, seed)).isfinite().all()), cell.name


def shapes_of(seed: int, label: str, op: Op = PLAIN, *, gpu: bool = False) -> list[tuple[int, ...]]:
    return [
        cell.inputs[0].shape for cell in fresh_widths(op, seed, gpu=gpu) if f"-{label}" in cell.name
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_power_of_two_and_one_below_run_in_two_dtypes(seed: int) -> None:
    cells = [cell for cell in fresh_widths(PLAIN, seed, gpu=True) if "-fresh-width" in cell.name]
    for power in POWERS:
        here = {
            cell.inputs[0].shape[1]: cell
            for cell in cells
            if 2**power < cell.inputs[0].shape[1] <= 2 ** (power + 1)
        }
        assert len(here) == 2 and max(here) == 2 ** (power + 1)
        assert len({cell.outputs[0].dtype for cell in here.values()}) == 2
        assert any(cell.values == "mixed" for cell in here.values())
    for at in (True, False):
        dtypes = [
            cell.outputs[0].dtype
            for cell in cells
            if (cell.inputs[0].shape[1].bit_count() == 1) == at
        ]
        assert all(
            set(dtypes[start : start + 3]) == set(DTYPES) for start in range(len(dtypes) - 2)
        )


@pytest.mark.parametrize("seed", range(20))
def test_powers_of_two_divide_long_rows_that_doubles_do_not(seed: int) -> None:
    divisors: dict[int, list[int]] = {}
    for _, columns in shapes_of(seed, "fresh-divided"):
        divisors.setdefault(columns.bit_length() - 1, []).append(
            (columns & -columns).bit_length() - 1
        )
    assert sorted(divisors) == list(range(9, 15))
    assert all(found == list(range(6, power)) for power, found in divisors.items() if power >= 12)
    assert all(
        len(found) == 1 and 6 <= found[0] < power for power, found in divisors.items() if power < 12
    )
    beside = [columns for _, columns in shapes_of(seed, "fresh-divided", gpu=True)]
    assert [columns > 4096 for columns in beside] == [False] * 3 + [True] * 8
    assert [(columns & -columns).bit_length() - 1 for columns in beside[3:]] == list(range(6, 14))


@pytest.mark.parametrize("name", ["softmax", "rope"])
@pytest.mark.parametrize("seed", range(10))
def test_small_powers_divide_row_counts_that_doubles_do_not(seed: int, name: str) -> None:
    """Every small power of two divides a number of rows that its double does not."""
    rows = [shape[0] for shape in shapes_of(seed, "fresh-row-tiles", ops.get(name))]
    assert [(count & -count).bit_length() - 1 for count in rows] == list(range(7))
    assert all(9 <= count <= 300 and count & (count - 1) for count in rows)


def test_any_dtype_meets_any_width_and_values() -> None:
    met = {
        (cell.outputs[0].dtype, cell.inputs[0].shape[1].bit_length(), cell.values == "mixed")
        for seed in range(400)
        for cell in fresh_widths(PLAIN, seed, gpu=True)
        if "-fresh-width" in cell.name and cell.inputs[0].shape[1] & cell.inputs[0].shape[1] - 1
    }
    assert met >= {
        (dtype, power + 1, mixed) for dtype in DTYPES for power in POWERS for mixed in (True, False)
    }


@pytest.mark.parametrize("name", ["swiglu", "rope", "rmsnorm_wide"])
def test_rows_by_the_hundred_are_whole_tiles_and_parts_of_tiles(name: str) -> None:
    op = ops.get(name)
    for seed in range(40):
        whole, parts, more = fresh_middle(op, seed)
        (rows, columns), (others, _), (dozens, wide) = (
            cell.inputs[0].shape for cell in (whole, parts, more)
        )
        assert rows % TILE_ROWS == 0 and columns % TILE_COLUMNS == 0 and 65 <= others <= 520
        if op.kind in ROPE_KINDS:
            assert dozens > 256 == wide, "heads have no other widths"
        else:
            assert dozens > 128 and 1024 < wide < 2048 and wide % 64 == 0 and wide & (wide - 1)


def test_long_equal_rows_run_where_the_maximum_is_subtracted() -> None:
    """Long rows of equal values below one are run where the largest is taken away."""
    for name, wanted in (("log_softmax", True), ("rmsnorm", False)):
        labels = [cell.name for cell in fresh_widths(ops.get(name), 5, gpu=True)]
        assert (
            any("-fresh-spike-" in label for label in labels)
            == any("-fresh-growing-" in label for label in labels)
            == wanted
        )


@pytest.mark.sweep
@pytest.mark.parametrize("where", WRONG_ONLY)
def test_a_kernel_that_is_wrong_only_there_is_rejected(referee: Referee, where: str) -> None:
    largest, scales = WRONG_ONLY[where]
    source = SOFTMAX.replace("LEAVES", largest).replace("SCALES", scales)
    found = [referee.judge(source, "softmax", level="correct", seed=seed) for seed in SEEDS]
    rejected = [verdict for verdict in found if not verdict.passed]
    # The fixed cases have three long rows too.
    drawn = (
        all("-fresh-" in verdict.reason for verdict in rejected) or where == "at several long rows"
    )
    assert drawn and all(verdict.guard == "wrong_answer" for verdict in rejected), found
    # Which values are drawn at one width alone is left to the seed.
    assert len(rejected) >= max(1, len(SEEDS) - 1), [
        (verdict.seed, verdict.verdict) for verdict in found
    ]


def test_the_same_kernel_that_is_wrong_nowhere_passes(referee: Referee) -> None:
    source = SOFTMAX.replace("LEAVES", ALWAYS).replace("SCALES", NEVER)
    assert [
        referee.judge(source, "softmax", level="correct", seed=seed).verdict for seed in SEEDS
    ] == ["correct"] * len(SEEDS)
