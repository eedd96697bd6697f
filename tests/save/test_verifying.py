"""`verify` finds what was changed, swapped or lost, and says what is merely stale."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.save.judged_part import candidate_of
from kmint_tui.save.receipt import load, seal
from kmint_tui.save.verifying import Judge, saved_kernels, verify
from referee.judge import Referee
from tests.cli.runner import kmint
from tests.save.conftest import Project, save_gold


@pytest.fixture(scope="module")
def original(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for name in ("row_rmsnorm", "online_softmax"):
        save_gold(referee, name, folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "kernels"))


@pytest.fixture
def judge(referee: Referee) -> Judge:
    return lambda candidate, op: referee.judge(candidate, op, level="correct")


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_an_untouched_kernel_holds(folder: Path, judge: Judge) -> None:
    found = verify(folder / "rmsnorm.py", judge)
    assert found.holds, found.problems
    assert (set(found.files.values()), found.receipt, found.stale) == ({"unchanged"}, "whole", ())
    receipt = load((folder / "rmsnorm.receipt.json").read_text(encoding="utf-8"))
    assert found.verdict is not None and found.verdict.seed != receipt["verdict"]["seed"]


def test_one_changed_constant_is_found_and_judged(folder: Path, judge: Judge) -> None:
    change(folder / "rmsnorm.py", "N + 1e-06", "N + 1e-02")
    found = verify(folder / "rmsnorm.py", judge)
    assert found.files["rmsnorm.py"] == "edited"
    assert found.verdict is not None and found.verdict.guard == "wrong_answer"
    assert len(found.problems) == 2


def test_an_edit_that_does_no_harm_is_told_as_an_edit(folder: Path, judge: Judge) -> None:
    change(folder / "rmsnorm.py", "# ---- judged by the referee: end ----\n", "# ---- judged by the referee: end ----\n# mine\n")
    found = verify(folder / "rmsnorm.py", judge)
    assert found.verdict is not None and found.verdict.passed
    assert found.problems == ("rmsnorm.py is edited since it was judged",)


def test_a_changed_receipt_is_found(folder: Path, judge: Judge) -> None:
    change(folder / "rmsnorm.receipt.json", '"verdict": "correct"', '"verdict": "win"')
    found = verify(folder / "rmsnorm.py", judge)
    assert (found.receipt, found.holds) == ("changed", False)


def test_swapped_files_are_found(folder: Path) -> None:
    shutil.copy(folder / "softmax.py", folder / "rmsnorm.py")
    found = verify(folder / "rmsnorm.py", None)
    assert found.files["rmsnorm.py"] == "edited"
    assert any("different kernels" in problem for problem in found.problems)


def test_a_stale_environment_is_reported_and_no_failure(folder: Path, judge: Judge) -> None:
    path = folder / "rmsnorm.receipt.json"
    receipt = load(path.read_text(encoding="utf-8"))
    receipt["verdict"]["environment"]["triton"] = "3.5.0"
    receipt["referee"] = {"version": "0.0.9", "sha256": "ab" * 32}
    path.write_text(seal({name: value for name, value in receipt.items() if name not in ("schema", "digest")}), encoding="utf-8")
    found = verify(folder / "rmsnorm.py", judge)
    assert found.holds, found.problems
    assert [(stale.name, stale.then) for stale in found.stale] == [("triton", "3.5.0"), ("referee", "0.0.9 (abababababab)")]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("rmsnorm.receipt.json", None, "receipt.json is missing"),
        ("rmsnorm.receipt.json", "{", "not JSON"),
        ("test_rmsnorm.py", None, "test_rmsnorm.py is missing"),
        ("rmsnorm.py", None, "missing"),
        ("rmsnorm.py", "x = 1\n", "no provenance"),
    ],
)
def test_what_is_missing_or_broken_is_named(folder: Path, name: str, content: str | None, word: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")
    found = verify(folder / "rmsnorm.py", None)
    assert any(word in problem for problem in found.problems), found.problems


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value within a JSON document, only the first of a list."""
    children = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for name, child in children:
        yield (*path, name)
        yield from places(child, (*path, name))


def test_no_receipt_however_changed_breaks_it(folder: Path, judge: Judge) -> None:
    known = judge(candidate_of((folder / "rmsnorm.py").read_text(encoding="utf-8")), "rmsnorm")
    path = folder / "rmsnorm.receipt.json"
    text = path.read_text(encoding="utf-8")
    for where in places(load(text)):
        for value in (None, 3, "odd", [3], {"odd": 3}):
            receipt = load(text)
            holder: Any = receipt
            for name in where[:-1]:
                holder = holder[name]
            if holder[where[-1]] == value:
                continue
            holder[where[-1]] = value
            path.write_text(json.dumps(receipt), encoding="utf-8")
            found = verify(folder / "rmsnorm.py", lambda candidate, op: known)
            assert not found.holds and found.receipt in ("changed", "unusable"), (where, value)
            json.dumps(found.to_json())


def test_a_judged_part_that_is_gone_is_a_problem(folder: Path, judge: Judge) -> None:
    change(folder / "rmsnorm.py", "# ---- judged by the referee: begin ----", "#")
    assert any("no part marked" in problem for problem in verify(folder / "rmsnorm.py", judge).problems)


def test_a_receipt_cannot_point_outside_its_folder(folder: Path) -> None:
    path = folder / "rmsnorm.receipt.json"
    receipt = load(path.read_text(encoding="utf-8"))
    receipt["files"]["../../etc/hostname"] = "0" * 64
    path.write_text(json.dumps(receipt), encoding="utf-8")
    assert verify(folder / "rmsnorm.py", None).files["../../etc/hostname"] == "missing"


def test_an_unknown_operation_is_a_problem_of_that_file(folder: Path) -> None:
    change(folder / "rmsnorm.receipt.json", '"op": "rmsnorm"', '"op": "rmsnrom"')
    done = kmint("verify", str(folder), "--json")
    assert done.code == 1, done.err
    problems = {Path(one["file"]).name: one["problems"] for one in done.document["kernels"]}
    assert problems["softmax.py"] == [] and any("rmsnrom" in problem for problem in problems["rmsnorm.py"])


def test_a_folder_without_kernels_is_a_wrong_request(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError):
            saved_kernels(path)


def test_the_command_judges_a_whole_folder(folder: Path) -> None:
    done = kmint("verify", str(folder), "--json")
    assert done.code == 0, done.err
    assert {Path(one["file"]).name for one in done.document["kernels"]} == {"rmsnorm.py", "softmax.py"}
    change(folder / "softmax.py", "__all__", "ALL = 1\n__all__")
    assert kmint("verify", str(folder), "--digests").code == 1
    text = kmint("verify", str(folder / "softmax.py"), "--digests").out
    assert "edited since judged" in text and "rmsnorm" not in text


def test_every_saved_kernel_of_the_project_is_found(project: Project) -> None:
    assert len(saved_kernels(project.folder)) == len(project.saved)
    assert all(verify(file, None).holds for file in saved_kernels(project.folder))
