"""The cells that the referee draws for itself: contract, widths, row counts and capabilities."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee import ops
from referee.ops import Op
from referee.ops.cells import contiguous_strides
from referee.ops.fresh_capabilities import fresh_capabilities
from referee.ops.fresh_cells import (
    CPU_MANY_ROWS,
    CPU_ROWS,
    CPU_SHORT,
    CPU_TILED_ROWS,
    DTYPES,
    GPU_LONGEST,
    GPU_MOST_ROWS,
    GPU_ROWS,
    MOST_ROWS,
    TILE_ROWS,
    TILED_ROWS,
    fresh_cells,
)
from referee.ops.signatures import ROPE_KINDS, signature
from referee.ops.spec import Dtype
from referee.ops.task import load
from referee.ops.values import draw

BEYOND = {
    "-fresh-tiled-": (CPU_TILED_ROWS, CPU_SHORT),
    "-fresh-rows-": (CPU_MANY_ROWS, CPU_SHORT),
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
        assert all(
            one.strides == contiguous_strides(one.shape) and one.offset == 0
            for one in (*cell.inputs, *cell.outputs)
        )
        beyond = next(
            (bounds for label, bounds in BEYOND.items() if label in cell.name and not gpu), None
        )
        many_long = next(
            (bounds for label, bounds in LONG_AND_MANY.items() if label in cell.name), None
        )
        if many_long:
            least, most = (530_000, 600_000) if op.kind in ROPE_KINDS else many_long
            assert (
                gpu and least <= rows <= most and columns == 128
                if op.kind in ROPE_KINDS
                else 1024 < columns <= 4096
            )
        elif "-fresh-usual-" in cell.name:
            assert 9 <= rows <= (8192 if gpu else 1023) and columns <= (8191 if gpu else 6000)
        elif beyond:
            (least, most), (shortest, longest) = beyond
            assert least <= rows <= most and (
                op.kind in ROPE_KINDS or shortest <= columns <= longest
            )
        else:
            many = "-rows-" in cell.name
            assert (
                rows in TILED_ROWS
                or 1 <= rows <= (GPU_ROWS + 1 if gpu else CPU_ROWS)
                or (many and rows <= GPU_MOST_ROWS + 1)
            )
            assert 1 <= columns <= (max(GPU_LONGEST.values()) if gpu else 6000)
            assert (
                columns % 16
                or rows == 2
                or (rows > 8 and rows % 8)
                or many
                or (gpu and rows % TILE_ROWS == 0)
            )
        assert all(2.0**-12 <= scale <= 64.0 for scale in cell.scales)
        if prod(cell.inputs[0].shape) < 20_000:
            inputs = draw(cell, seed)
            assert bool(load(op.name, "cpu").eager(*inputs).isfinite().all()), cell.name


@pytest.mark.parametrize("name", ["softmax", "rope", "dequant_int8"])
def test_on_a_gpu_two_fresh_cells_have_many_rows(
    name: str,
) -> None:
    op = ops.get(name)
    fixed = {
        (cell.inputs[0].shape[1], cell.outputs[0].dtype) for cell in ops.cells(op, profile="gpu")
    }
    beyond = 0
    for seed in range(50):
        odd, shared = (
            cell
            for cell in fresh_cells(op, seed, gpu=True, multiprocessors=148)
            if "-rows-" in cell.name
        )
        (rows, _), (even, _) = odd.inputs[0].shape, shared.inputs[0].shape
        assert 8192 < rows <= 262145 and rows % 2
        assert even % 148 == 0 and 1900 < even <= MOST_ROWS
        assert {
            (cell.inputs[0].shape[1], cell.outputs[0].dtype) for cell in (odd, shared)
        } <= fixed, "compiled already"
        beyond += rows > MOST_ROWS
    assert 10 < beyond < 40
    assert not any(
        "-rows-" in cell.name for cell in fresh_cells(ops.get("rmsnorm_wide"), 1, gpu=True)
    )


def test_on_a_gpu_tile_groups_are_partial_and_long_rows_are_many() -> None:
    """On a GPU groups of tiles are not whole and many rows are long within the block that is
    timed.
    """
    for name, timed in (("softmax", 4096), ("rmsnorm_short", 2048), ("rmsnorm_wide", 0)):
        drawn: dict[str, list[tuple[int, ...]]] = {label: [] for label in LONG_AND_MANY}
        dtypes: dict[str, set[Dtype]] = {}
        for seed in range(40):
            for cell in fresh_cells(ops.get(name), seed, gpu=True):
                for label, shapes in drawn.items():
                    if label in cell.name:
                        shapes.append(cell.inputs[0].shape)
                        assert timed // 2 < shapes[-1][1] <= timed
                        dtypes.setdefault(label, set()).add(cell.outputs[0].dtype)
        # Of the most elements none is in float32, which would take twice the memory.
        assert list(dtypes.values()) == ([set(DTYPES), {"float16", "bfloat16"}] if timed else [])
        groups, elements = drawn.values()
        assert len(groups) == len(elements) == (40 if timed else 0)
        assert all(columns % 128 == 0 and columns & (columns - 1) for _, columns in groups)
        assert all(rows * columns > 1 << 26 and columns % 16 == 0 for rows, columns in elements)
        assert not timed or len({-(-rows // 64) % 8 for rows, _ in groups}) == 8


@pytest.mark.parametrize(
    "name", ["softmax", "dequant_int8", "qknorm_rope", "add_rmsnorm", "rmsnorm_wide"]
)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_gaps_and_offsets_come_from_the_seed(name: str, profile: Literal["cpu", "gpu"]) -> None:
    op = ops.get(name)
    fixed = [cell for cell in ops.cells(op, profile=profile) if cell.role == "capability"]
    found: dict[str, set[tuple[int, int]]] = {}
    for seed in range(30):
        made = fresh_capabilities(op, fixed, seed, gpu=profile == "gpu")
        assert made == fresh_capabilities(op, fixed, seed, gpu=profile == "gpu")
        assert [replace(cell, inputs=()) for cell in made[: len(fixed)]] == [
            replace(cell, inputs=()) for cell in fixed
        ]
        for number, cell in enumerate(made):
            matrices = [spec for spec in cell.inputs if len(spec.shape) == 2]
            gap, *gaps = {
                spec.strides[0] - spec.shape[1] for spec in matrices if 0 not in spec.shape
            } or {0}
            (offset,) = {spec.offset for spec in cell.inputs}
            padded, moved = (
                "-padded-" in cell.name,
                "-offset-" in cell.name or "-padded-x" in cell.name,
            )
            if "-padded-aligned-" in cell.name:
                assert gap and all(spec.strides[0] % 16 == 0 for spec in matrices)
            else:
                assert not gaps and (gap % 2 if padded else not gap)
            assert offset % 2 if moved else not offset
            if number < len(fixed):
                assert [spec.shape for spec in cell.inputs] == [
                    spec.shape for spec in fixed[number].inputs
                ]
                if padded or moved:
                    found.setdefault(cell.name, set()).add((gap, offset))
    assert len(found) == sum("padded" in cell.name or "offset" in cell.name for cell in fixed) > 2
    assert all(len(values) > 10 for values in found.values())


@pytest.mark.parametrize(
    "name",
    [
        "softmax",
        "dequant_int8",
        "cumsum",
        "qknorm_rope",
        "add_rmsnorm",
        "rmsnorm_wide",
        "rmsnorm_short",
    ],
)
@pytest.mark.parametrize("gpu", [False, True])
def test_capabilities_are_checked_at_many_rows_too(name: str, gpu: bool) -> None:
    op = ops.get(name)
    fixed = [
        cell for cell in ops.cells(op, profile="gpu" if gpu else "cpu") if cell.role == "capability"
    ]
    labels = {
        label
        for label in ("padded", "padded-aligned", "nonfinite", "head80")
        if any(f"-{label}-x" in cell.name for cell in fixed)
    }
    assert "padded" in labels and ("head80" in labels) == (op.kind in ROPE_KINDS)
    rows: dict[str, set[int]] = {label: set() for label in labels}
    dtypes = set()
    for seed in range(40):
        drawn = fresh_capabilities(op, fixed, seed, gpu=gpu)[len(fixed) :]
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


@pytest.mark.parametrize(
    "name", ["softmax", "dequant_int8", "cumsum", "qknorm_rope", "rmsnorm_wide", "rmsnorm_short"]
)
@pytest.mark.parametrize("gpu", [False, True])
def test_capabilities_are_checked_at_long_rows_too(name: str, gpu: bool) -> None:
    op = ops.get(name)
    fixed = [
        cell for cell in ops.cells(op, profile="gpu" if gpu else "cpu") if cell.role == "capability"
    ]
    labels = {
        label
        for label in ("padded", "nonfinite", "nonfinite-masked")
        if any(f"-{label}-x" in cell.name for cell in fixed)
    }
    absent = op.kind in ROPE_KINDS or (gpu and op.regime == "short")
    widths, dtypes = set(), set()
    for seed in range(40):
        drawn = [
            cell
            for cell in fresh_capabilities(op, fixed, seed, gpu=gpu)[len(fixed) :]
            if 12288 < cell.inputs[0].shape[1] != 16384
        ]
        assert len(drawn) == (0 if absent else len(labels))
        for cell in drawn:
            rows, columns = cell.inputs[0].shape
            assert (
                columns <= (16384 if gpu else 33001)
                and 3 * columns // 4 > 8192
                and rows >= (6 if cell.values != "normal" else 2)
            )
            widths.add(columns)
            dtypes.add(cell.outputs[0].dtype)
    assert absent or (
        len(widths) > 30
        and dtypes == ({"float16"} if gpu or name == "dequant_int8" else set(DTYPES))
    )


@pytest.mark.parametrize("gpu", [False, True])
def test_many_fresh_cells_have_special_widths_and_odd_rows(
    gpu: bool,
) -> None:
    op = ops.get("softmax")
    drawn = [cell for seed in range(400) for cell in fresh_cells(op, seed, gpu=gpu)]
    others = ("-fresh-usual-", *LONG_AND_MANY, *(() if gpu else BEYOND))
    shapes = [
        cell.inputs[0].shape for cell in drawn if not any(label in cell.name for label in others)
    ]
    powers, multiples = (
        {
            columns
            for _, columns in shapes
            if columns % 64 == 0 and (columns & columns - 1 == 0) == power
        }
        for power in (1, 0)
    )
    assert {64, 128, 256, 512, 1024, 2048} | ({4096, 8192} if gpu else set()) <= powers and len(
        multiples
    ) > 20
    even = [rows for rows, columns in shapes if columns % 16 == 0 and rows > 2]
    whole = [rows for rows in even if rows % TILE_ROWS == 0]
    assert len(even) > len(shapes) / 4 and all(
        rows > 8 and (rows % 8 or rows in whole) for rows in even
    )
    # Whole tiles of rows too, by the one as by the hundred; without a GPU fixed cells have them.
    assert (
        (
            len(even) / 8 < len(whole) < len(even) / 4
            and min(whole) == TILE_ROWS
            and max(whole) > 2048
        )
        if gpu
        else not whole
    )


@pytest.mark.parametrize("name", ["swiglu", "rmsnorm_wide"])
def test_on_a_gpu_a_fresh_cell_is_an_odd_number_of_tiles_wide(
    name: str,
) -> None:
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
        assert columns <= blocks[dtype], (
            "whole rows are no larger block than those compiled already"
        )
        found.add((tile, dtype))
    tiles = [2**power for power in range(4, 12)]
    assert found == {*((tile, dtype) for tile in tiles for dtype in DTYPES), (4096, "float16")}


@pytest.mark.parametrize("name", ["softmax", "qknorm_rope", "rmsnorm_wide"])
def test_on_a_cpu_dozens_and_thousands_of_rows_are_drawn(
    name: str,
) -> None:
    """Without a GPU rows by the dozen and by the thousand are drawn in every dtype."""
    op = ops.get(name)
    for label, bounds in BEYOND.items():
        drawn = [
            cell
            for seed in range(60)
            for cell in fresh_cells(op, seed, gpu=False)
            if label in cell.name
        ]
        absent = label == "-fresh-rows-" and op.regime == "wide"
        assert len(drawn) == (0 if absent else 60), label
        assert absent or {cell.outputs[0].dtype for cell in drawn} == {
            "float32",
            "float16",
            "bfloat16",
        }
        if not absent:
            rows = [cell.inputs[0].shape[0] for cell in drawn]
            assert len(set(rows)) > 30 and max(rows) > 0.9 * bounds[0][1]
        if label == "-fresh-tiled-":
            assert (
                sum(count < 128 for count in rows) > 10 and sum(count > 300 for count in rows) > 10
            )


def test_another_seed_gives_other_cells() -> None:
    op = ops.get("softmax")
    assert len({fresh_cells(op, seed, gpu=True) for seed in range(50)}) == 50
