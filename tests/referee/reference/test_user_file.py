"""How a reference file is imported."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

from referee.reference.asked import Asked
from referee.reference.load import load_reference
from referee.reference.unusable import UnusableReference
from tests.referee.own_reference import load_user


def test_a_file_is_judged_by_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "reference.py"
    for number in ("2.0", "3.0"):
        file.write_text(
            f"import torch\ndef fn(x):\n    return x * {number}\ndef get_inputs():\n    return [torch.ones(4, 8)]\n"
        )
        # As an editor's script or a copy may leave it: of the same size and time, by which Python
        # takes bytecode for the file's.
        os.utime(file, (1e9, 1e9))
        assert float(load_user(file, "fn", "cpu").eager(torch.ones(1))) == float(number)
    assert [entry.name for entry in tmp_path.iterdir()] == ["reference.py"]


REFERENCE = "{line}\nimport torch\ndef fn(x):\n    return double(x)\ndef get_inputs():\n    return [torch.ones(4, 8)]\n"


IN_PACKAGE = ("__init__.py", "numbers.py", "ops/__init__.py", "ops/twice.py")


def package(folder: Path) -> Path:
    """A folder with a package `mine`, in which `mine/ops/norm.py` is to be a reference."""
    for name, text in {
        "mine/__init__.py": "",
        "mine/numbers.py": "TWO = 2.0\n",
        "mine/ops/__init__.py": "",
        "mine/ops/twice.py": "from ..numbers import TWO\ndef double(x):\n    return x * TWO\n",
        "beside.py": "def double(x):\n    import later\n    return x * later.TWO\n",
        "later.py": "TWO = 2.0\n",
        "torch_like/__init__.py": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("place", "line", "others"),
    [
        ("reference.py", "from beside import double", ["beside.py", "later.py"]),
        (
            "reference.py",
            "from mine.ops.twice import double",
            [f"mine/{name}" for name in IN_PACKAGE],
        ),
        (
            "mine/ops/norm.py",
            "from .twice import double",
            ["../__init__.py", "../numbers.py", "__init__.py", "twice.py"],
        ),
        (
            "mine/ops/norm.py",
            "from mine.ops.twice import double",
            ["../__init__.py", "../numbers.py", "__init__.py", "twice.py"],
        ),
    ],
)
def test_modules_beside_the_file_are_found_and_named(
    tmp_path: Path, place: str, line: str, others: list[str]
) -> None:
    """A reference may import what lies beside it, or in its own package; all files read count in
    its digest, also what the first call imports.
    """
    file = package(tmp_path) / place
    file.write_text(REFERENCE.format(line=line))
    reference = load_reference(Asked(str(file), "fn"))
    assert [name for name, _ in reference.files] == [file.name, *others]
    assert torch.equal(reference.function(torch.ones(3)), torch.full((3,), 2.0))


def test_a_neighbour_that_changes_is_read_again(tmp_path: Path) -> None:
    file = package(tmp_path) / "reference.py"
    file.write_text(REFERENCE.format(line="from beside import double"))
    before = load_reference(Asked(str(file), "fn"))
    (tmp_path / "beside.py").write_text("def double(x):\n    return x * 3\n")
    after = load_reference(Asked(str(file), "fn"))
    assert before.digest != after.digest and torch.equal(
        after.function(torch.ones(1)), torch.full((1,), 3.0)
    )


def test_two_folders_have_modules_of_the_same_name(tmp_path: Path) -> None:
    found = []
    for number in ("2.0", "5.0"):
        folder = tmp_path / number
        folder.mkdir()
        (folder / "beside.py").write_text(f"def double(x):\n    return x * {number}\n")
        (folder / "reference.py").write_text(REFERENCE.format(line="from beside import double"))
        found.append(load_user(folder / "reference.py", "fn", "cpu"))
    assert [float(task.eager(torch.ones(1))) for task in found] == [2.0, 5.0]


def test_only_the_users_code_finds_modules_beside_it(tmp_path: Path) -> None:
    """What kmint imports later never comes from the reference's folder."""
    file = package(tmp_path) / "reference.py"
    file.write_text(REFERENCE.format(line="from beside import double"))
    load_reference(Asked(str(file), "fn"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch_like")


def test_a_module_that_is_nowhere_is_told(tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE.format(line="import nowhere_at_all"))
    with pytest.raises(
        UnusableReference,
        match="failed on import: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ):
        load_user(file, "fn", "cpu")


def test_what_is_no_python_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "reference.txt"
    file.write_text("")
    with pytest.raises(UnusableReference, match="is not a Python file"):
        load_user(file, "fn", "cpu")
