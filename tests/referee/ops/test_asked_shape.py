"""Shapes that a user asks for: their texts, and the cells that they become."""

from __future__ import annotations

import pytest

from referee.asked_shape import (
    FEW_ROWS,
    ROW_COUNTS,
    AskedShape,
    ShapeError,
    check,
    needed_bytes,
    possible,
    shapes_of,
)
from referee.cases import replayed, without_gpu
from referee.ops import get
from referee.problem import Problem, TaskName

ASKED = TaskName("softmax", shapes=("32768x1024:bfloat16", "512x4096:float32"))


def test_a_text_is_read_and_written_alike() -> None:
    shape = AskedShape.parse("32768x1024:bf16")
    assert shape == AskedShape(32768, 1024, "bfloat16")
    assert AskedShape.parse(str(shape)) == shape
    assert AskedShape.parse("7x5") == AskedShape(7, 5, "float16")


@pytest.mark.parametrize(
    "text", ["0x5", "5x0", "axb", "5", "5x5x5", "-1x4", "4x4:fp8", "", "1e3x4", "x"]
)
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        AskedShape.parse(text)


def test_any_rows_are_several_judged_row_counts() -> None:
    some = shapes_of(" Mx4096:bf16 ")
    assert [one.rows for one in some] == list(ROW_COUNTS)
    assert {(one.columns, one.dtype) for one in some} == {(4096, "bfloat16")}
    assert shapes_of("7x5") == (AskedShape(7, 5, "float16"),)
    with pytest.raises(ShapeError, match="several shapes"):
        AskedShape.parse("Mx4096")


@pytest.mark.parametrize(
    "text", ["Mx0", "MxN", "xM", "4096xM", "M", "MxM", "mx4", "Mx4:fp8", "MMx4"]
)
def test_a_wrong_pattern_of_rows_is_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        shapes_of(text)


def test_row_counts_that_are_too_many_are_left_out() -> None:
    softmax = get("softmax")
    vocabulary = possible(softmax, shapes_of("Mx131072:bf16"))
    assert [one.rows for one in vocabulary] == [1, 64, 2048]
    with pytest.raises(ShapeError, match="1x99999999999:float16 has"):
        possible(softmax, shapes_of("Mx99999999999"))


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("rope", "8x127"),
        ("dequant_int8", "8x128:bf16"),
        ("softmax", "65536x65536"),
        ("logsumexp", "8x128"),
    ],
)
def test_a_shape_that_an_operation_cannot_have_is_refused(op: str, text: str) -> None:
    with pytest.raises(ShapeError):
        check(get(op), AskedShape.parse(text))


def test_the_asked_shapes_are_timed_before_the_usual_one() -> None:
    cells = replayed(Problem(ASKED), 5).required
    assert [cell.inputs[0].shape for cell in cells[:2]] == [(32768, 1024), (512, 4096)]
    assert [cell.inputs[0].dtype for cell in cells[:2]] == ["bfloat16", "float32"]
    assert [cell.role for cell in cells].count("bench") == 2
    usual = Problem("softmax").bench()
    assert usual is not None
    assert next(cell.role for cell in cells if cell.name == usual.name) == "required"
    assert len(cells) >= len(replayed(Problem("softmax"), 5).fixed) + 2


def test_without_a_gpu_a_few_rows_of_the_asked_width_are_judged() -> None:
    cells = {cell.name: cell for cell in without_gpu(Problem(ASKED), 5).required}
    usual = {cell.name for cell in without_gpu(Problem("softmax"), 5).required}
    assert {cells[name].inputs[0].shape for name in cells.keys() - usual} == {
        (FEW_ROWS, 1024),
        (FEW_ROWS, 4096),
    }


def test_the_memory_grows_with_the_rows() -> None:
    op = get("rmsnorm")
    few, many = (needed_bytes(op, AskedShape(rows, 1024, "bfloat16")) for rows in (1024, 2048))
    assert few < many <= 2 * few
    assert few > 2 * 1024 * 1024 * 2


def test_another_shape_is_another_task_to_the_replay_worker() -> None:
    packed = {
        "op": "softmax",
        "file": None,
        "function": None,
        "inputs": [],
        "fixed": [],
        "shapes": list(ASKED.shapes),
        "timed": [],
        "wide": False,
    }
    assert TaskName.from_json(packed) == ASKED != TaskName.of("softmax")


def test_only_the_timed_ones_of_the_shapes_are_timed() -> None:
    """The others stay required cases of the same sizes."""
    wide, tall = "512x131072:bfloat16", "32768x1024:bfloat16"
    cells = Problem(TaskName("softmax", shapes=(wide, tall), timed=(tall,))).cells("gpu")
    roles = {cell.inputs[0].shape: cell.role for cell in cells if cell.role != "capability"}
    assert roles.items() >= {(512, 131072): "required", (32768, 1024): "bench"}.items()
    assert list(roles.values()).count("bench") == 1


def test_one_row_of_a_very_long_width_is_judged_without_a_gpu() -> None:
    cells = without_gpu(Problem(TaskName("softmax", shapes=("512x131072:bfloat16",))), 5).required
    assert (2, 131072) in [cell.inputs[0].shape for cell in cells]
