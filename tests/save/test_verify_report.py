"""The output of `kmint verify` for a folder, on a terminal and for a CI system."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kmint_tui.cli.verify_report import write_junit
from kmint_tui.save.verifying import Verification
from tests.cli.runner import kmint
from tests.evil import EVIL
from tests.save.conftest import save_quickly

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel that is as it was, one that was edited, and one that lost its receipt."""
    made = tmp_path / "kernels"
    for name in ("row_rmsnorm", "online_softmax", "flat_swiglu"):
        save_quickly(name, made)
    (made / "softmax.py").write_text((made / "softmax.py").read_text() + "# mine\n")
    (made / "swiglu.receipt.json").unlink()
    return made


def test_a_folder_is_a_table_with_its_problems_below(folder: Path) -> None:
    done = kmint("verify", str(folder), "--digests")
    assert done.code == 1, done.err
    head, *rows = done.out.splitlines()
    assert head.split() == ["kernel", "files", "verdict", "changed", "since", "holds"]
    assert rows[0].startswith("rmsnorm.py") and "unchanged since judged" in rows[0]
    assert rows[0].endswith("yes")
    assert rows[1].startswith("softmax.py") and "edited since judged" in rows[1]
    assert rows[2].startswith("swiglu.py") and "never judged here" in rows[2]
    assert "softmax.py: softmax.py is edited since it was judged" in rows[3:]
    assert any(row.startswith("swiglu.py: never judged here: ") for row in rows[3:])


def test_a_file_without_a_receipt_was_never_judged_here(folder: Path, tmp_path: Path) -> None:
    done = kmint("verify", str(folder / "swiglu.py"), "--digests")
    assert done.code == 1 and "never judged here" in done.out, done.out
    (tmp_path / "mine.py").write_text("x = 1\n")
    alien = kmint("verify", str(tmp_path / "mine.py"))
    assert alien.code == 1 and "never judged here" in alien.out and "not judged" in alien.out


def test_junit_names_every_kernel_and_why_it_does_not_hold(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    done = kmint("verify", str(folder), "--digests", "--junit", str(report), "--json")
    assert done.code == 1 and len(done.document["kernels"]) == 3
    root = ElementTree.parse(report).getroot()
    assert (root.tag, root.attrib) == ("testsuites", {"tests": "3", "failures": "2"})
    cases = {Path(one.attrib["name"]).name: one for one in root.iter("testcase")}
    assert cases["rmsnorm.py"].find("failure") is None
    failure = cases["softmax.py"].find("failure")
    assert failure is not None and "edited since" in failure.attrib["message"]
    output = cases["swiglu.py"].find("system-out")
    assert output is not None and output.text is not None and "never judged here" in output.text


def test_a_junit_file_that_cannot_be_written_is_a_storage_error(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    done = kmint("verify", str(folder), "--digests", "--junit", str(folder / "file" / "a.xml"))
    assert done.code == 6 and "a.xml" in done.err


def test_no_name_or_problem_breaks_the_junit_file(tmp_path: Path) -> None:
    problem = f"{EVIL} <&\"'> \ufffe \x00"
    found = Verification(
        file=Path(f"a{EVIL}.py"),
        op=None,
        files={},
        receipt="missing",
        stale=(),
        verdict=None,
        problems=(problem,),
    )
    write_junit(tmp_path / "a.xml", [found], 1.0)
    case = next(ElementTree.parse(tmp_path / "a.xml").iter("testcase"))
    failure = case.find("failure")
    assert failure is not None and failure.text is not None and "<&\"'>" in failure.text


def test_the_variants_of_a_package_are_one_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    save_quickly("row_rmsnorm", folder, "hf-kernel")
    done = kmint("verify", str(folder), "--digests", "--json")
    (one,) = done.document["kernels"]
    assert done.code == 0 and len(one["copies"]) == 2
    built = next((folder / "build").glob("*/rmsnorm.py"))
    built.write_text(built.read_text() + "# mine\n")
    changed = kmint("verify", str(folder), "--digests", "--json").document["kernels"]
    assert sorted(kernel["holds"] for kernel in changed) == [False, True]


def test_a_place_that_can_only_be_read_is_enough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())}
    # No user can write there, not even root.
    monkeypatch.setenv("KMINT_HOME", "/proc/nowhere")
    done = kmint("verify", str(folder / "rmsnorm.py"), "--digests")
    assert done.code == 0, done.err
    assert {path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())} == before
