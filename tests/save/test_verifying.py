"""`verify` finds what was changed, swapped or lost, and says what is merely stale."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.save.judged_part import BEGIN, END, candidate_of
from kmint_tui.save.receipt import load, seal
from kmint_tui.save.verifying import Judge, saved_kernels, verify
from referee.judge import Referee
from referee.versions import FP_FUSION
from tests.cli.runner import kmint
from tests.sampling import sample
from tests.save.conftest import Project, save_gold

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def original(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for name in ("row_rmsnorm", "flat_swiglu"):
        save_gold(referee, name, folder, drafted=False)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "kernels"))


@pytest.fixture(scope="module")
def judge(referee: Referee) -> Judge:
    """Judges each text once, with a seed of its own."""
    return functools.cache(
        lambda candidate, op: Referee.judge(referee, candidate, op, level="correct")
    )


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
    change(
        folder / "rmsnorm.py",
        "# ---- judged by the referee: end ----\n",
        "# ---- judged by the referee: end ----\n# mine\n",
    )
    found = verify(folder / "rmsnorm.py", judge)
    assert found.verdict is not None and found.verdict.passed
    assert found.problems == ("rmsnorm.py is edited since it was judged",)


def test_a_changed_receipt_is_found(folder: Path, judge: Judge) -> None:
    change(folder / "rmsnorm.receipt.json", '"verdict": "correct"', '"verdict": "win"')
    found = verify(folder / "rmsnorm.py", judge)
    assert (found.receipt, found.holds) == ("changed", False)


def test_swapped_files_are_found(folder: Path) -> None:
    shutil.copy(folder / "swiglu.py", folder / "rmsnorm.py")
    found = verify(folder / "rmsnorm.py", None)
    assert found.files["rmsnorm.py"] == "edited"
    assert any("different kernels" in problem for problem in found.problems)


def test_a_stale_environment_is_reported_and_no_failure(folder: Path, judge: Judge) -> None:
    path = folder / "rmsnorm.receipt.json"
    receipt = load(path.read_text(encoding="utf-8"))
    receipt["verdict"]["environment"]["triton"] = "3.5.0"
    receipt["referee"] = {"version": "0.0.9", "sha256": "ab" * 32}
    path.write_text(
        seal({name: value for name, value in receipt.items() if name not in ("schema", "digest")}),
        encoding="utf-8",
    )
    found = verify(folder / "rmsnorm.py", judge)
    assert found.holds, found.problems
    assert [(stale.name, stale.then) for stale in found.stale] == [
        ("triton", "3.5.0"),
        ("referee", "0.0.9 (abababababab)"),
    ]


def test_a_receipt_under_another_switch_is_stale(folder: Path, judge: Judge) -> None:
    path = folder / "rmsnorm.receipt.json"
    receipt = load(path.read_text(encoding="utf-8"))
    environment = receipt["verdict"]["environment"]
    assert environment["switches"] == {FP_FUSION: "1"}
    environment["switches"] = {FP_FUSION: "0"}
    path.write_text(
        seal({name: value for name, value in receipt.items() if name not in ("schema", "digest")}),
        encoding="utf-8",
    )
    found = verify(folder / "rmsnorm.py", judge)
    version = environment["triton"]
    assert found.holds and [(stale.then, stale.now) for stale in found.stale] == [
        (f"{version} {FP_FUSION}=0", version)
    ]


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
def test_what_is_missing_or_broken_is_named(
    folder: Path, name: str, content: str | None, word: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")
    found = verify(folder / "rmsnorm.py", None)
    assert any(word in problem for problem in found.problems), found.problems


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value within a JSON document, only the first of a list."""
    children = (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:1]
        if isinstance(value, list)
        else ()
    )
    for name, child in children:
        yield (*path, name)
        yield from places(child, (*path, name))


def test_no_receipt_however_changed_breaks_it(folder: Path, judge: Judge) -> None:
    known = judge(candidate_of((folder / "rmsnorm.py").read_text(encoding="utf-8")), "rmsnorm")
    path = folder / "rmsnorm.receipt.json"
    text = path.read_text(encoding="utf-8")
    values: tuple[Any, ...] = (None, 3, "odd", [3], {"odd": 3})
    for where, value in sample(product(places(load(text)), values), step=4):
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
    assert any(
        "no part marked" in problem for problem in verify(folder / "rmsnorm.py", judge).problems
    )


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
    assert problems["swiglu.py"] == [] and any(
        "rmsnrom" in problem for problem in problems["rmsnorm.py"]
    )


def test_odd_names_in_a_folder_end_nothing(folder: Path) -> None:
    """A folder, a dangling link, a pipe and a file of any size may be called *.py, or be named by a
    receipt."""
    (folder / "folder.py").mkdir()
    (folder / "folder.receipt.json").mkdir()
    (folder / "dangling.py").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.py")
    os.mkfifo(folder / "pipe.receipt.json")
    with (folder / "large.py").open("wb") as file:
        file.truncate(4 << 30)
    receipt = folder / "rmsnorm.receipt.json"
    names = {"": "", "..": "", "pipe.py": "", "large.py": "", "a\0b": "", "n" * 300: ""}
    receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "files": names}))
    done = kmint("verify", str(folder), "--digests", "--json")
    assert done.code == 1 and done.err == ""
    found = {Path(one["file"]).name: one for one in done.document["kernels"]}
    assert set(found) == {"folder.py", "pipe.py", "rmsnorm.py", "swiglu.py"}
    assert found["swiglu.py"]["holds"] and set(found["rmsnorm.py"]["files"].values()) == {
        "missing",
        "edited",
    }
    for name in ("folder.py", "pipe.py"):
        assert any("cannot be read" in problem for problem in found[name]["problems"])
        assert kmint("verify", str(folder / name)).code in (1, 2)


HOSTILE_PARTS = {
    "deep": "-" * 20_000 + "1",
    "deep brackets": "(" * 5000 + ")" * 5000,
    "long": "x = 1\n" * 50_000,
    "null": "\0",
    "a chain": "x" + ".x" * 30_000,
}


@pytest.mark.parametrize("text", HOSTILE_PARTS.values(), ids=HOSTILE_PARTS)
def test_a_hostile_judged_part_is_a_problem(folder: Path, text: str) -> None:
    file = folder / "rmsnorm.py"
    before, _, after = file.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    file.write_text(f"{before}{BEGIN}\n{text}\n{after[after.index(END) :]}", encoding="utf-8")
    done = kmint("verify", str(file), "--json")
    assert done.code == 1, done.err
    assert any(
        "judged part is not Python" in problem
        for problem in done.document["kernels"][0]["problems"]
    )


HOSTILE_BLOCKS = {
    "deep": "# a = " + "[" * 50_000,
    "a long key": "# " + "a." * 50_000 + "a = 1",
    "a list as op": '# op = ["rmsnorm"]',
    "a number as reference": "# reference = 5",
    "a wide number": "# seed = " + "9" * 5000,
}


@pytest.mark.parametrize("text", HOSTILE_BLOCKS.values(), ids=HOSTILE_BLOCKS)
def test_a_hostile_provenance_block_is_no_block(folder: Path, text: str) -> None:
    file = folder / "rmsnorm.py"
    (folder / "rmsnorm.receipt.json").unlink()
    before, _, after = file.read_text(encoding="utf-8").partition("# /// kmint\n")
    file.write_text(
        f"{before}# /// kmint\n{text}\n{after[after.index('# ///') :]}", encoding="utf-8"
    )
    done = kmint("verify", str(file), "--json")
    assert done.code == 1, done.err
    assert "the file has no provenance block" in done.document["kernels"][0]["problems"]


def test_a_folder_without_kernels_is_a_wrong_request(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError):
            saved_kernels(path)


def test_the_command_judges_a_whole_folder(folder: Path) -> None:
    # It needs no place of its own: no user can write there.
    done = kmint("verify", str(folder), "--json", KMINT_HOME="/proc/nowhere")
    assert done.code == 0, done.err
    assert {Path(one["file"]).name for one in done.document["kernels"]} == {
        "rmsnorm.py",
        "swiglu.py",
    }
    change(folder / "swiglu.py", "__all__", "ALL = 1\n__all__")
    assert kmint("verify", str(folder), "--digests").code == 1
    text = kmint("verify", str(folder / "swiglu.py"), "--digests").out
    assert "edited since judged" in text and "rmsnorm" not in text


def test_every_saved_kernel_of_the_project_is_found(project: Project) -> None:
    assert len(saved_kernels(project.folder)) == len(project.saved)
    assert all(verify(file, None).holds for file in saved_kernels(project.folder))
