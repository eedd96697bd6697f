"""`--shape` and `--dtype` through the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.asked_shape import ROW_COUNTS
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.cli.test_judge import DOUBLE, REFERENCE
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

NARROW = GOOD.replace("x_ptr + row", "(N == 768) + x_ptr + row", 1)


def test_a_kernel_is_judged_at_the_asked_width(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "narrow.py").write_text(NARROW, encoding="utf-8")
    assert NARROW != GOOD
    good = kmint(
        "judge",
        str(tmp_path / "good.py"),
        "--op",
        "softmax",
        "--shape",
        "64x768",
        "--dtype",
        "bf16",
        "--json",
    )
    assert (good.code, good.document["verdict"]) == (0, "correct"), good.err
    asked = [cell for cell in good.document["cells"] if cell["name"] == "bf16-3x768-asked-x1"]
    assert [cell["status"] for cell in asked] == ["pass"]
    bad = kmint(
        "judge", str(tmp_path / "narrow.py"), "--op", "softmax", "--shape", "64x768:bf16", "--json"
    )
    assert (bad.code, bad.document["verdict"]) == (1, "rejected")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shape", "0x5"], "is no shape"),
        (["--shape", "axb"], "is no shape"),
        (["--shape", "4x4x4"], "is no shape"),
        (["--shape", "Mx0"], "'Mx0' is no shape"),
        (["--shape", "MxN"], "'MxN' is no shape"),
        (["--shape", "xM"], "'xM' is no shape"),
        (["--shape", "8x8:fp8"], "fp8 is none of"),
        (["--dtype", "int3"], "int3 is none of"),
        (["--shape", "999999x999999"], "GiB in one tensor"),
    ],
)
def test_wrong_shapes_are_told_before_anything_runs(
    tmp_path: Path, options: list[str], words: str
) -> None:
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")
    refused(kmint("judge", str(tmp_path / "softmax.py"), *options), 2, words, "--shape 32768x1024")
    refused(kmint("mint", "softmax", *options), 2, words)


@pytest.mark.parametrize("command", [["judge", "softmax.py"], ["mint", "softmax"]])
def test_a_row_that_no_interpreter_runs_is_told(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict without the asked shape would say nothing on it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = kmint(*command, "--shape", "4x1000000:bf16")
    refused(done, 3, "a row of 4x1000000:bfloat16 is too long", "262,144", "judge on a GPU")


def test_a_reference_has_its_sizes_from_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (tmp_path / "double.py").write_text(DOUBLE, encoding="utf-8")
    own = ["--reference", str(tmp_path / "reference.py:double")]
    refused(
        kmint("judge", str(tmp_path / "double.py"), *own, "--shape", "8x8"),
        2,
        "operations of the catalogue",
        "--input",
    )
    refused(kmint("mint", "logsumexp", "--shape", "8x8"), 2, "say its sizes")


def test_a_mint_shows_and_remembers_the_shapes() -> None:
    shown = kmint("mint", "softmax", "--shape", "32768x1024:bf16", "--shape", "64x768", "--dry-run")
    assert shown.code == 0 and "32768x1024:bfloat16, 64x768:float16" in shown.out
    spread = kmint("mint", "softmax", "--shape", "Mx4096:bf16", "--dry-run")
    names = ", ".join(f"{rows}x4096:bfloat16" for rows in ROW_COUNTS)
    assert spread.code == 0 and names in " ".join(spread.out.split())
    usual = kmint("mint", "rope", "--dtype", "bf16", "--dry-run")
    assert "32768x128:bfloat16" in usual.out


@pytest.mark.gpu
def test_a_kernel_is_timed_at_each_asked_shape(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")
    done = kmint(
        "judge",
        str(tmp_path / "softmax.py"),
        "--shape",
        "4096x1024:bf16",
        "--shape",
        "512x4096:fp32",
        "--json",
    )
    timing = done.document["timing"]
    assert done.code == 0, done.err
    assert [one["cell"] for one in timing["shapes"]] == [
        "bf16-4096x1024-asked-x1",
        "f32-512x4096-asked-x1",
    ]
    product = 1.0
    for one in timing["shapes"]:
        assert f"{one['decision']} at {one['cell']}" in done.document["reason"]
        product *= one["ratio"]["ratio"]
    assert timing["geometric_mean"] == pytest.approx(product**0.5)
