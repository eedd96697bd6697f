"""`kmint grid`: which cells, what is shown of them, what is written; measuring itself on a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kmint_tui import paths
from kmint_tui.cli.grid import show
from kmint_tui.cli.streams import Output
from kmint_tui.core.grid import MeasuredGrid, record_file, wanted_cells
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.errors import UsageError
from kmint_tui.history.measurements import Measurements
from referee import ops
from referee.grid import GridPoint, identity_of, place_of
from referee.problem import TaskName
from referee.verdict import Rejection
from referee.versions import FP_FUSION
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.save.conftest import source
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

HERE = {"device": "NVIDIA H200", "torch": "2.11", "triton": "3.6", "arch": 90, "python": "3.12"}
KERNEL = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
POINTS = (
    GridPoint(1024, 4096, "float16", "win", 1.5, 1.4, 1.6, "compile", 10.0, 15.0),
    GridPoint(4096, 4096, "float16", "loss", 0.5, 0.4, 0.6, "compile", 30.0, 15.0),
    GridPoint(1024, 4096, "bfloat16", "rejected", reason="wrong_answer: row 3"),
    GridPoint(4096, 4096, "bfloat16", "tie", 1.0, 0.99, 1.005, "eager", 15.0, 15.0),
)


def test_the_cells_can_be_narrowed_down() -> None:
    assert len(wanted_cells(KERNEL, (), None)) == 12
    assert {place_of(cell)[2] for cell in wanted_cells(KERNEL, (), "bfloat16")} == {"bfloat16"}
    assert [place_of(cell) for cell in wanted_cells(KERNEL, ("4096x4096",), "float16")] == [
        (4096, 4096, "float16")
    ]


def test_a_shape_need_not_be_of_the_published_grid() -> None:
    found = wanted_cells(KERNEL, ("32768x1024", "7x300:fp32"), None)
    assert [place_of(cell) for cell in found] == [
        (32768, 1024, "float16"),
        (7, 300, "float32"),
        (32768, 1024, "bfloat16"),
    ]


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "words"),
    [("softmax", ("0x1",), None, "0x1"), ("dequant_int8", (), "bf16", "float16 alone")],
)
def test_cells_that_an_operation_cannot_have_are_told(
    op: str, shapes: tuple[str, ...], dtype: str | None, words: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        wanted_cells(replace(KERNEL, op=ops.get(op)), shapes, dtype)
    assert words in refusal.value.message and "--shape 32768x1024" in refusal.value.fix


def test_an_operation_of_ones_own_has_no_grid() -> None:
    with pytest.raises(UsageError, match="catalogue"):
        wanted_cells(replace(KERNEL, op=replace(KERNEL.op, kind="user")), (), None)


def test_losses_stand_beside_wins_and_once_more_below(capsys: pytest.CaptureFixture[str]) -> None:
    found = MeasuredGrid(KERNEL, POINTS, None, HERE, earlier=1)
    show(Output(), found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["rows", "x", "columns", "float16", "bfloat16"]
    assert lines[2].split() == ["1024", "x", "4096", "1.500", "+", "rejected", "x"]
    assert lines[3].split() == ["4096", "x", "4096", "0.500", "-", "1.000", "="]
    assert "wins at 1 and loses at 2 of 4 cells (1 win, 1 tie, 1 loss, 1 rejected)" in lines[5]
    assert [line.partition(" float16")[0].partition(" bfloat16")[0] for line in lines[6:]] == [
        "losing: 4096 x 4096",
        "losing: 1024 x 4096",
    ]
    show(Output(colour=True), found)
    assert (
        "\x1b[31m0.500 -" in (painted := capsys.readouterr().out) and "\x1b[32m1.500 +" in painted
    )
    document = found.to_json()
    assert document["right"] is False and document["earlier"] == 1 and len(document["points"]) == 4
    assert document["summary"]["losing"] == [[4096, 4096, "float16"], [1024, 4096, "bfloat16"]]
    assert document["points"][1] == asdict(POINTS[1])


def test_a_kernel_that_is_rejected_has_no_grid(capsys: pytest.CaptureFixture[str]) -> None:
    found = MeasuredGrid(KERNEL, (), Rejection("correct", "wrong_answer", "row 3"), HERE)
    show(Output(), found)
    assert capsys.readouterr().out.splitlines()[1:] == ["rejected by wrong_answer: row 3"]
    assert not found.right and found.to_json()["rejection"]["guard"] == "wrong_answer"


def test_a_record_belongs_to_one_kernel_device_and_version() -> None:
    identity = identity_of(GOOD, "softmax", HERE)
    others = [
        identity_of(GOOD + "\n", "softmax", HERE),
        identity_of(GOOD, "rmsnorm", HERE),
        identity_of(GOOD, "softmax", {**HERE, "triton": "3.7"}),
        identity_of(GOOD, "softmax", {**HERE, "switches": {FP_FUSION: "0"}}),
    ]
    files = {record_file(one) for one in (identity, *others)}
    assert (
        len(files) == 5
        and record_file(identity) in files
        and all(file.parent.is_dir() for file in files)
    )


def test_an_unwritable_picture_is_refused_before_measuring(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(GOOD, encoding="utf-8")
    refused(
        kmint("grid", str(file), "--op", "softmax", "--save", str(tmp_path / "grid.png")), 2, ".svg"
    )
    refused(
        kmint("grid", str(file), "--op", "softmax", "--save", str(tmp_path / "none" / "grid.svg")),
        2,
        "not a folder",
    )
    refused(kmint("grid", str(file), "--op", "softmax", "--shape", "7x"), 2, "'7x' is no shape")


@pytest.mark.gpu
def test_a_grid_on_a_gpu_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file, picture = tmp_path / "kernel.py", tmp_path / "grid.svg"
    file.write_text(source("autotuned_rmsnorm_relu6"), encoding="utf-8")
    command = [
        "grid",
        str(file),
        "--op",
        "rmsnorm_relu6",
        "--dtype",
        "float16",
        "--shape",
        "1024x4096",
        "--json",
    ]
    done = kmint(*command, "--save", str(picture))
    found = done.document
    assert done.code == 0, done.err
    (point,) = found["points"]
    assert (
        point["decision"] in ("win", "tie", "loss", "unsure")
        and point["ratio"] > 0
        and found["summary"]["timed"] == 1
    )
    assert found["earlier"] == 0 and ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    again = kmint(*command)
    assert again.document["points"] == [point] and again.document["earlier"] == 1
    with Measurements(paths.history_file()) as store:
        assert [one.kind for one in store.of(found["kernel"]["source_sha256"])] == ["grid", "grid"]


@pytest.mark.gpu
def test_a_wrong_kernel_gets_no_grid(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(GOOD.replace("x / tl.sum(x, axis=0)", "x"), encoding="utf-8")
    done = kmint("grid", str(file), "--op", "softmax", "--json")
    assert done.code == 1 and done.document["points"] == []
    assert done.document["rejection"]["guard"] == "wrong_answer"
    assert json.loads(done.out)["schema"] == "kmint.grid/1"
