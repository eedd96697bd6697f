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


def test_what_is_no_python_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "reference.txt"
    file.write_text("")
    with pytest.raises(UserReferenceError, match="is not a Python file"):
        load_user(file, "fn", "cpu")
