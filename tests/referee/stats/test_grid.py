"""The grid's cells, its record on disk, its summary and its pictures. Measuring needs a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from referee import ops
from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer, ReplayerError
from referee.grid import (
    MATRIX_SHAPES,
    ROPE_SHAPES,
    SCHEMA,
    GridError,
    GridPoint,
    grid_cells,
    read_record,
    run_grid,
    summarise,
)
from referee.grid_picture import svg, text_map
from referee.ops.spec import Cell
from referee.verdict import Rejection

IDENTITY = {"source": "abc", "op": "relu2", "device": "a GPU"}
POINTS = (
    GridPoint(1024, 4096, "float16", "win", 1.5, 1.4, 1.6, "compile", 10.0, 15.0),
    GridPoint(1024, 4096, "bfloat16", "loss", 0.5, 0.4, 0.6, "compile", 30.0, 15.0),
    GridPoint(256, 16384, "float16", "tie", 1.0, 0.995, 1.005, "eager", 15.0, 15.0),
    GridPoint(256, 16384, "bfloat16", "rejected", reason="wrong_answer: <row 3>"),
)


def refuse(cell: Cell) -> CompiledCandidate | Rejection:
    return Rejection("compile", "compile_error", f"no kernel for {cell.name}")


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("rmsnorm", MATRIX_SHAPES), ("rope", ROPE_SHAPES), ("cross_entropy", MATRIX_SHAPES)],
)
def test_cells_have_the_published_shapes_in_both_dtypes(
    name: str, shapes: tuple[tuple[int, int], ...]
) -> None:
    cells = grid_cells(ops.get(name))
    assert len(cells) == 2 * len(shapes)
    assert {cell.inputs[0].shape for cell in cells} == set(shapes)
    assert {cell.outputs[0].dtype for cell in cells} == {"float16", "bfloat16"}


def test_a_grid_cell_is_the_bench_cell_where_they_meet() -> None:
    bench = next(
        cell for cell in ops.cells(ops.get("add_rmsnorm"), profile="gpu") if cell.role == "bench"
    )
    (same,) = [cell for cell in grid_cells(ops.get("add_rmsnorm")) if cell.inputs == bench.inputs]
    assert (same.outputs, same.values, same.scales, same.role) == (
        bench.outputs,
        bench.values,
        bench.scales,
        "bench",
    )


def counted(calls: list[str]) -> Callable[[Cell], CompiledCandidate | Rejection]:
    def prepare(cell: Cell) -> CompiledCandidate | Rejection:
        calls.append(cell.name)
        return refuse(cell)

    return prepare


def test_an_interrupted_grid_goes_on_where_it_stopped(tmp_path: Path) -> None:
    cells, record = grid_cells(ops.get("relu2")), tmp_path / "grid.jsonl"
    replayer = Replayer(device="cpu", cache=tmp_path)
    first = run_grid(cells, refuse, replayer, record, identity=IDENTITY)
    begun = [next(first), next(first)]
    first.close()
    with open(record, "a", encoding="utf-8") as file:
        file.write('{"rows": 10')
    calls: list[str] = []
    points = list(run_grid(cells, counted(calls), replayer, record, identity=IDENTITY))
    assert points[:2] == begun
    assert calls == [cell.name for cell in cells[2:]]
    assert read_record(record, IDENTITY) == points
    assert {point.decision for point in points} == {"rejected"}


OTHER_RECORDS = (
    b"[]\n",
    b"no json\n",
    json.dumps({"schema": SCHEMA, "identity": {"source": "other"}}).encode() + b"\n",
    b"[" * 50_000 + b"\n",
    b"\xff\xfe\n",
)


@pytest.mark.parametrize("text", OTHER_RECORDS)
def test_a_record_of_something_else_is_refused(tmp_path: Path, text: bytes) -> None:
    record = tmp_path / "grid.jsonl"
    record.write_bytes(text)
    with pytest.raises(GridError):
        read_record(record, IDENTITY)
    assert record.read_bytes() == text


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"rows": "many"},
        {"ratio": "fast"},
        {"decision": None},
        {"seed": True},
        {"bar": []},
    ],
)
def test_a_point_with_other_fields_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    record = tmp_path / "grid.jsonl"
    spoiled = {**asdict(POINTS[0]), **change}
    record.write_text(
        f"{json.dumps({'schema': SCHEMA, 'identity': IDENTITY})}\n{json.dumps(spoiled)}\n",
        encoding="utf-8",
    )
    with pytest.raises(GridError):
        read_record(record, IDENTITY)


def test_a_cell_at_which_the_machinery_failed_is_measured_again(tmp_path: Path) -> None:
    cells, record = grid_cells(ops.get("relu2"))[:2], tmp_path / "grid.jsonl"
    replayer = Replayer(device="cpu", cache=tmp_path)

    def broken(cell: Cell) -> CompiledCandidate | Rejection:
        raise ReplayerError("the device is gone")

    first = list(run_grid(cells, broken, replayer, record, identity=IDENTITY))
    assert [(point.decision, point.reason) for point in first] == [
        ("error", "the device is gone")
    ] * 2
    calls: list[str] = []
    second = list(run_grid(cells, counted(calls), replayer, record, identity=IDENTITY))
    assert (
        calls == [cell.name for cell in cells]
        and [point.decision for point in second] == ["rejected"] * 2
    )
    assert list(run_grid(cells, broken, replayer, record, identity=IDENTITY)) == second


def test_the_summary_counts_and_lists_every_losing_cell() -> None:
    found = summarise(POINTS)
    assert found.geomean == pytest.approx((1.5 * 0.5 * 1.0) ** (1 / 3))
    assert found.win_rate == 0.25
    assert found.losing == (POINTS[1], POINTS[3])
    assert summarise(()).geomean is None


def test_the_text_map_shows_each_cell_and_the_losing_ones_again() -> None:
    text = text_map(POINTS)
    assert "1.500 +" in text
    assert "0.500 -" in text
    assert text.count("losing:") == 2
    assert "wins at 1 and loses at 2 of 4 cells (1 win, 1 tie, 1 loss, 1 rejected)" in text
    assert "wrong_answer" in text


def test_the_svg_is_well_formed_and_escapes_reasons() -> None:
    tree = ElementTree.fromstring(svg(POINTS, "relu2 <script>"))
    boxes = [node for node in tree.iter() if node.tag.endswith("rect")]
    assert len(boxes) == 1 + len(POINTS)
    greens = [node.get("fill") for node in boxes[1:]]
    assert greens[0] is not None
    assert greens[0].endswith(f"ff{round(255 - 150 * math.log2(1.5)):02x}")
    assert greens[3] == "#ff6969", "a cell that is not usable is as red as the slowest one"
    assert "#d0d0d0" in svg(POINTS[:3], "relu2"), "grey is only what was not measured"


def test_an_op_of_a_user_has_no_grid() -> None:
    with pytest.raises(GridError):
        grid_cells(replace(ops.get("relu2"), kind="function"))
