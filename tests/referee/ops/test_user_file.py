"""How a reference file is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from referee.ops.user import UserReferenceError, load_user


def test_a_file_is_judged_by_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "reference.py"
    for number in ("2.0", "3.0"):
        file.write_text(f"import torch\ndef fn(x):\n    return x * {number}\ndef get_inputs():\n    return [torch.ones(4, 8)]\n")
        # As an editor's script or a copy may leave it: of the same size and time, by which Python takes bytecode for the file's.
        os.utime(file, (1e9, 1e9))
        assert float(load_user(file, "fn", "cpu").eager(torch.ones(1))) == float(number)
    assert [entry.name for entry in tmp_path.iterdir()] == ["reference.py"]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("import beside_me", "copy in what it needs, or install beside_me"),
        ("from beside_me.part import fn", "copy in what it needs, or install beside_me"),
        ("import nowhere_at_all", None),
    ],
)
def test_a_module_beside_the_file_is_not_found_and_what_to_do_is_told(tmp_path: Path, line: str, advice: str | None) -> None:
    (tmp_path / "beside_me.py").write_text("")
    file = tmp_path / "reference.py"
    file.write_text(f"{line}\ndef fn(x):\n    return x\n")
    with pytest.raises(UserReferenceError, match="failed on import: ModuleNotFoundError") as found:
        load_user(file, "fn", "cpu")
    assert advice in str(found.value) if advice else "lies beside" not in str(found.value)


def test_what_is_no_python_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "reference.txt"
    file.write_text("")
    with pytest.raises(UserReferenceError, match="is not a Python file"):
        load_user(file, "fn", "cpu")
