"""Cells that hypothesis makes up within an op's contract: right kernels pass at every one of them, slips are found out.

The referee itself draws its fresh cells with a seeded generator of its own (`referee/ops/fresh_cells.py`), because a verdict must be
repeatable from its seed and needs no test library. Here both are held to the same contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from random import Random
from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from referee import ops
from referee.cpu_path import CpuPath
from referee.ops import Op
from referee.ops.cells import cell_of, contiguous_strides
from referee.ops.fresh_badges import fresh_badges
from referee.ops.fresh_cells import (
    CPU_COLUMNS,
    CPU_LONG,
    CPU_LONGER,
    CPU_MANY_ROWS,
    CPU_ROWS,
    CPU_SHORT,
    CPU_TILED_ROWS,
    DTYPES,
    GPU_LONGEST,
    GPU_MOST_ROWS,
    GPU_ROWS,
    HEADS,
    MOST_ROWS,
    RECIPES,
    TILE_ROWS,
    TILED_ROWS,
    fresh_cells,
)
from referee.ops.plans import Draft
from referee.ops.signatures import ROPE_KINDS, signature
from referee.ops.spec import Dtype
from referee.ops.task import load
from referee.ops.values import draw
from referee.reading.kernels import extract
from referee.sandbox.workers import Workers
from referee.selftest.corpus import Specimen
from referee.selftest.corpus import load as specimens
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection

SEED = 20261121
SLOW = settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
GOLD = ("online_softmax", "welford_layernorm_hardtanh", "looped_cross_entropy", "scan_cumsum", "pairs_rope_interleaved", "split_l2norm")
SLIPS = ("softmax_no_max", "layernorm_single_pass", "cumsum_last_block", "looped_rmsnorm_first_block", "swiglu_swapped")
"""Most show only at some cells: at large values, at a shifted mean, in rows of several blocks."""


class Bench:
    """Runs kernels at cells of ours on the CPU path."""

    def __init__(self) -> None:
        self.tracers, self.interpreters = Workers(), Workers(interpret=True)

    def rejection(self, kernel: Specimen, drafts: Sequence[Draft]) -> Rejection | None:
        """Why the kernel falls at the first of these cells where it does."""
        op = ops.get(kernel.op)
        cells = [replace(cell_of(op, draft), name=f"{number}") for number, draft in enumerate(drafts)]
        module = extract(kernel.source)
        plans = trace(self.tracers, kernel.source, cells, Target(), module)
        if isinstance(plans, Rejection):
            return plans
        atomic = any(one.atomic for one in module.signatures)
        path = CpuPath(self.interpreters, load(kernel.op, "cpu"), module.text, atomic, SEED)
        return path.required(list(zip(cells, plans, strict=True)))[1]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.tracers.close()
    found.interpreters.close()


def drafts(op: Op) -> st.SearchStrategy[Draft]:
    """Any cell of the op's contract that the interpreter runs in reasonable time."""
    edges = st.sampled_from([1, 2, 127, 128, 129, 1023, 1024, 1025, 2048])
    columns = st.sampled_from(HEADS) if op.kind in ROPE_KINDS else st.one_of(edges, st.integers(1, CPU_COLUMNS))
    scaled = st.sets(st.sampled_from(signature(op))).map(lambda names: tuple(sorted(names)))
    return st.builds(
        Draft,
        rows=st.integers(1, CPU_ROWS),
        columns=columns,
        dtype=st.sampled_from(DTYPES),
        values=st.sampled_from([*RECIPES, "mixed"]),
        scale=st.integers(-6, 6).map(lambda power: 2.0**power),
        scaled=scaled,
    )


@pytest.mark.parametrize("name", GOLD)
def test_right_kernels_pass_wherever_the_contract_reaches(bench: Bench, name: str) -> None:
    kernel = next(one for one in specimens("gold") if one.name == name)

    @SLOW
    @given(st.lists(drafts(ops.get(kernel.op)), min_size=2, max_size=4))
    def at_any(cells: list[Draft]) -> None:
        assert bench.rejection(kernel, cells) is None

    at_any()


@pytest.mark.parametrize("name", SLIPS)
def test_slips_are_found_out_by_generated_cells(bench: Bench, name: str) -> None:
    kernel = next(one for one in specimens("wrong") if one.name == name)
    strategy = st.lists(drafts(ops.get(kernel.op)), min_size=4, max_size=8)
    twenty = settings(SLOW, max_examples=20)
    shown = find(strategy, lambda cells: bench.rejection(kernel, cells) is not None, settings=twenty, random=Random(1))
    rejection = bench.rejection(kernel, shown)
    assert rejection is not None and rejection.guard in ("wrong_answer", "not_deterministic")


BEYOND = {
    "-fresh-tiled-": (CPU_TILED_ROWS, CPU_SHORT),
    "-fresh-rows-": (CPU_MANY_ROWS, CPU_SHORT),
    "-fresh-long-": ((1, 2), (CPU_LONG[0], CPU_LONGER[1])),
}
LONG_AND_MANY = {"-fresh-groups-": (2049, 8191), "-fresh-elements-": (65_601, 80_000)}
"""On a GPU; of heads the last one has more."""


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(ops.catalogue()), st.integers(0, 2**63 - 1), st.booleans())
def test_the_referee_s_own_fresh_cells_keep_the_contract(op: Op, seed: int, gpu: bool) -> None:
    made = fresh_cells(op, seed, gpu=gpu)
    assert made and made == fresh_cells(op, seed, gpu=gpu)
    assert len({cell.name for cell in made}) == len(made)
    for cell in made:
        rows, columns = cell.inputs[0].shape
        assert cell.role == "required" and tuple(one.name for one in cell.inputs) == signature(op)
        assert all(one.strides == contiguous_strides(one.shape) and one.offset == 0 for one in (*cell.inputs, *cell.outputs))
        beyond = next((bounds for label, bounds in BEYOND.items() if label in cell.name and not gpu), None)
        many_long = next((bounds for label, bounds in LONG_AND_MANY.items() if label in cell.name), None)
        if many_long:
            least, most = (530_000, 600_000) if op.kind in ROPE_KINDS else many_long
            assert gpu and least <= rows <= most and columns == 128 if op.kind in ROPE_KINDS else 1024 < columns <= 4096
        elif "-fresh-usual-" in cell.name:
            assert 9 <= rows <= (8192 if gpu else 1023) and columns <= (8191 if gpu else 6000)
        elif beyond:
            (least, most), (shortest, longest) = beyond
            assert least <= rows <= most and (op.kind in ROPE_KINDS or shortest <= columns <= longest)
        else:
            many = "-rows-" in cell.name
            assert rows in TILED_ROWS or 1 <= rows <= (GPU_ROWS + 1 if gpu else CPU_ROWS) or (many and rows <= GPU_MOST_ROWS + 1)
            assert 1 <= columns <= (max(GPU_LONGEST.values()) if gpu else 6000)
            assert columns % 16 or rows == 2 or (rows > 8 and rows % 8) or many or (gpu and rows % TILE_ROWS == 0)
        assert all(2.0**-12 <= scale <= 64.0 for scale in cell.scales)
        if prod(cell.inputs[0].shape) < 20_000:
            inputs = draw(cell, seed)
            assert bool(load(op.name, "cpu").eager(*inputs).isfinite().all()), cell.name


@pytest.mark.parametrize("name", ["softmax", "rope", "dequant_int8"])
def test_on_a_gpu_two_fresh_cells_have_many_rows_an_odd_number_and_one_that_multiprocessors_share(name: str) -> None:
    op = ops.get(name)
    fixed = {(cell.inputs[0].shape[1], cell.outputs[0].dtype) for cell in ops.cells(op, profile="gpu")}
    beyond = 0
    for seed in range(50):
        odd, shared = (cell for cell in fresh_cells(op, seed, gpu=True, multiprocessors=148) if "-rows-" in cell.name)
        (rows, _), (even, _) = odd.inputs[0].shape, shared.inputs[0].shape
        assert 8192 < rows <= 262145 and rows % 2
        assert even % 148 == 0 and 1900 < even <= MOST_ROWS
        assert {(cell.inputs[0].shape[1], cell.outputs[0].dtype) for cell in (odd, shared)} <= fixed, "compiled already"
        beyond += rows > MOST_ROWS
    assert 10 < beyond < 40
    assert not any("-rows-" in cell.name for cell in fresh_cells(ops.get("rmsnorm_wide"), 1, gpu=True))


def test_on_a_gpu_groups_of_tiles_are_not_whole_and_many_rows_are_long_within_the_block_that_is_timed() -> None:
    for name, timed in (("softmax", 4096), ("rmsnorm_short", 2048), ("rmsnorm_wide", 0)):
        drawn: dict[str, list[tuple[int, ...]]] = {label: [] for label in LONG_AND_MANY}
        for seed in range(40):
            for cell in fresh_cells(ops.get(name), seed, gpu=True):
                for label, shapes in drawn.items():
                    if label in cell.name:
                        shapes.append(cell.inputs[0].shape)
                        assert cell.outputs[0].dtype == "float16" and timed // 2 < shapes[-1][1] <= timed
        groups, elements = drawn.values()
        assert len(groups) == len(elements) == (40 if timed else 0)
        assert all(columns % 128 == 0 and columns & (columns - 1) for _, columns in groups)
        assert all(rows * columns > 1 << 26 and columns % 16 == 0 for rows, columns in elements)
        assert not timed or len({-(-rows // 64) % 8 for rows, _ in groups}) == 8


@pytest.mark.parametrize("name", ["softmax", "dequant_int8", "qknorm_rope", "add_rmsnorm", "rmsnorm_wide"])
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_gaps_and_offsets_come_from_the_seed_and_are_the_same_in_a_cell(name: str, profile: Literal["cpu", "gpu"]) -> None:
    op = ops.get(name)
    fixed = [cell for cell in ops.cells(op, profile=profile) if cell.role == "capability"]
    found: dict[str, set[tuple[int, int]]] = {}
    for seed in range(30):
        made = fresh_badges(op, fixed, seed, gpu=profile == "gpu")
        assert made == fresh_badges(op, fixed, seed, gpu=profile == "gpu")
        assert [replace(cell, inputs=()) for cell in made[: len(fixed)]] == [replace(cell, inputs=()) for cell in fixed]
        for number, cell in enumerate(made):
            matrices = [spec for spec in cell.inputs if len(spec.shape) == 2]
            gap, *gaps = {spec.strides[0] - spec.shape[1] for spec in matrices if 0 not in spec.shape} or {0}
            (offset,) = {spec.offset for spec in cell.inputs}
            padded, moved = "-padded-" in cell.name, "-offset-" in cell.name or "-padded-x" in cell.name
            if "-padded-aligned-" in cell.name:
                assert gap and all(spec.strides[0] % 16 == 0 for spec in matrices)
            else:
                assert not gaps and (gap % 2 if padded else not gap)
            assert offset % 2 if moved else not offset
            if number < len(fixed):
                assert [spec.shape for spec in cell.inputs] == [spec.shape for spec in fixed[number].inputs]
                if padded or moved:
                    found.setdefault(cell.name, set()).add((gap, offset))
    assert len(found) == sum("padded" in cell.name or "offset" in cell.name for cell in fixed) > 2
    assert all(len(values) > 10 for values in found.values())


@pytest.mark.parametrize("name", ["softmax", "dequant_int8", "cumsum", "qknorm_rope", "add_rmsnorm", "rmsnorm_wide", "rmsnorm_short"])
@pytest.mark.parametrize("gpu", [False, True])
def test_badges_are_earned_at_many_rows_too_of_a_number_that_nobody_knows(name: str, gpu: bool) -> None:
    op = ops.get(name)
    fixed = [cell for cell in ops.cells(op, profile="gpu" if gpu else "cpu") if cell.role == "capability"]
    labels = {label for label in ("padded", "padded-aligned", "nonfinite", "head80") if any(f"-{label}-x" in cell.name for cell in fixed)}
    assert "padded" in labels and ("head80" in labels) == (op.kind in ROPE_KINDS)
    rows: dict[str, set[int]] = {label: set() for label in labels}
    dtypes = set()
    for seed in range(40):
        drawn = fresh_badges(op, fixed, seed, gpu=gpu)[len(fixed) :]
        assert len(drawn) >= len(labels)
        for cell in drawn[: len(labels)]:
            (label,) = (label for label in labels if f"-{label}-x" in cell.name)
            count, columns = cell.inputs[0].shape
            assert cell.role == "capability" and count * columns <= 1 << 22
            assert 64 <= count <= 8192 if gpu else 256 < count <= 320 and columns <= 80
            rows[label].add(count)
            if label == "head80":
                assert columns == 80
                dtypes.add(cell.outputs[0].dtype)
    assert all(len(counts) > 20 for counts in rows.values())
    assert dtypes == (set(DTYPES) if "head80" in labels else set())


@pytest.mark.parametrize("name", ["softmax", "dequant_int8", "cumsum", "qknorm_rope", "rmsnorm_wide", "rmsnorm_short"])
@pytest.mark.parametrize("gpu", [False, True])
def test_badges_are_earned_at_long_rows_too_and_masks_leave_nothing_of_a_block(name: str, gpu: bool) -> None:
    op = ops.get(name)
    fixed = [cell for cell in ops.cells(op, profile="gpu" if gpu else "cpu") if cell.role == "capability"]
    labels = {label for label in ("padded", "nonfinite", "nonfinite-masked") if any(f"-{label}-x" in cell.name for cell in fixed)}
    absent = op.kind in ROPE_KINDS or (gpu and op.regime == "short")
    widths, dtypes = set(), set()
    for seed in range(40):
        drawn = [cell for cell in fresh_badges(op, fixed, seed, gpu=gpu)[len(fixed) :] if 12288 < cell.inputs[0].shape[1] != 16384]
        assert len(drawn) == (0 if absent else len(labels))
        for cell in drawn:
            rows, columns = cell.inputs[0].shape
            assert columns <= (16384 if gpu else 33001) and 3 * columns // 4 > 8192 and rows >= (6 if cell.values != "normal" else 2)
            widths.add(columns)
            dtypes.add(cell.outputs[0].dtype)
    assert absent or (len(widths) > 30 and dtypes == ({"float16"} if gpu or name == "dequant_int8" else set(DTYPES)))


@pytest.mark.parametrize("gpu", [False, True])
def test_many_fresh_cells_have_widths_that_kernels_treat_apart_and_rows_that_no_tile_divides(gpu: bool) -> None:
    op = ops.get("softmax")
    drawn = [cell for seed in range(400) for cell in fresh_cells(op, seed, gpu=gpu)]
    others = ("-fresh-usual-", *LONG_AND_MANY, *(() if gpu else BEYOND))
    shapes = [cell.inputs[0].shape for cell in drawn if not any(label in cell.name for label in others)]
    powers, multiples = (
        {columns for _, columns in shapes if columns % 64 == 0 and (columns & columns - 1 == 0) == power} for power in (1, 0)
    )
    assert {64, 128, 256, 512, 1024, 2048} | ({4096, 8192} if gpu else set()) <= powers and len(multiples) > 20
    even = [rows for rows, columns in shapes if columns % 16 == 0 and rows > 2]
    whole = [rows for rows in even if rows % TILE_ROWS == 0]
    assert len(even) > len(shapes) / 4 and all(rows > 8 and (rows % 8 or rows in whole) for rows in even)
    # Whole tiles of rows too, by the one as by the hundred; without a GPU fixed cells have them.
    assert (len(even) / 8 < len(whole) < len(even) / 4 and min(whole) == TILE_ROWS and max(whole) > 2048) if gpu else not whole


@pytest.mark.parametrize("name", ["swiglu", "rmsnorm_wide"])
def test_on_a_gpu_a_fresh_cell_is_an_odd_number_of_tiles_wide_and_tiles_of_every_size_come(name: str) -> None:
    op = ops.get(name)
    blocks: dict[Dtype, int] = {}
    for cell in ops.cells(ops.get("swiglu"), profile="gpu"):
        columns, dtype = cell.inputs[0].shape[1], cell.outputs[0].dtype
        blocks[dtype] = max(blocks.get(dtype, 0), 1 << (columns - 1).bit_length())
    found = set()
    for seed in range(400):
        cell = fresh_cells(op, seed, gpu=True)[1]
        columns, dtype = cell.inputs[0].shape[1], cell.outputs[0].dtype
        tile = columns & -columns
        assert tile >= 16 and columns // tile >= 3
        assert columns <= blocks[dtype], "whole rows are no larger block than those compiled already"
        found.add((tile, dtype))
    tiles = [2**power for power in range(4, 12)]
    assert found == {*((tile, dtype) for tile in tiles for dtype in DTYPES), (4096, "float16")}


@pytest.mark.parametrize("name", ["softmax", "qknorm_rope", "rmsnorm_wide"])
def test_without_a_gpu_rows_by_the_dozen_and_by_the_thousand_and_long_ones_are_drawn_in_every_dtype(name: str) -> None:
    op = ops.get(name)
    for label, bounds in BEYOND.items():
        drawn = [cell for seed in range(60) for cell in fresh_cells(op, seed, gpu=False) if label in cell.name]
        absent = (label == "-fresh-long-" and op.kind in ROPE_KINDS) or (label == "-fresh-rows-" and op.regime == "wide")
        assert len(drawn) == (0 if absent else 60), label
        assert absent or {cell.outputs[0].dtype for cell in drawn} == {"float32", "float16", "bfloat16"}
        if not absent and bounds[0] != (1, 2):
            rows = [cell.inputs[0].shape[0] for cell in drawn]
            assert len(set(rows)) > 30 and max(rows) > 0.9 * bounds[0][1]
        if label == "-fresh-tiled-":
            assert sum(count < 128 for count in rows) > 10 and sum(count > 300 for count in rows) > 10
        if label == "-fresh-long-" and not absent:
            # Whole tiles of a size that is usual, and one over; but most widths are no multiple of any.
            tiles = [cell.inputs[0].shape[1] & -cell.inputs[0].shape[1] for cell in drawn]
            assert 10 < sum(tile >= 256 for tile in tiles) < 30 and sum(tile < 16 for tile in tiles) > 15


def test_another_seed_gives_other_cells() -> None:
    op = ops.get("softmax")
    assert len({fresh_cells(op, seed, gpu=True) for seed in range(50)}) == 50
