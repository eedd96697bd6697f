"""The version matrix: its lists name files that exist, and its rows outlive a run."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "release" / "matrix.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # Dataclasses look their module up by its name.
        patch.setitem(sys.modules, "matrix", found)
        spec.loader.exec_module(found)
    return found


def row(matrix: ModuleType, **changes: Any) -> Any:
    found = matrix.Row(
        torch="2.13.0",
        triton="3.9.0",
        python="3.11.7",
        resolution="highest",
        scope="quick",
        tests="1 failed, 9 passed",
        failed=("FAILED a.py::b",),
        selftest=0,
        skipped=3,
        seconds=1.0,
    )
    return replace(found, **changes)


def test_every_listed_test_exists(matrix: ModuleType) -> None:
    listed = (*matrix.ALL, *matrix.QUICK, *matrix.PACKAGES)
    assert [name for name in listed if not (ROOT / name).exists()] == []


def test_the_pairs_cover_the_known_versions(matrix: ModuleType) -> None:
    from referee.versions import KNOWN

    minors = {tuple(map(int, triton.split(".")[:2])) for _, triton in matrix.PAIRS}
    assert minors == KNOWN.keys()


def test_rows_are_kept_one_by_one(matrix: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    for changes in ({}, {"triton": "3.8.0"}, {"tests": "10 passed", "failed": ()}):
        matrix.keep(file, row(matrix, **changes))
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [(one["triton"], one["tests"]) for one in rows] == [
        ("3.8.0", "1 failed, 9 passed"),
        ("3.9.0", "10 passed"),
    ]


def test_the_table_names_failures(matrix: ModuleType) -> None:
    lines = matrix.table([row(matrix), row(matrix, triton="3.10.0", failed=())]).splitlines()
    assert lines[0].split()[:2] == ["torch", "triton"] and len(lines) == 4
    assert lines[0].index("python") == lines[1].index("3.11.7") == lines[2].index("3.11.7")
    assert lines[3] == "3.9.0: FAILED a.py::b"


@pytest.mark.parametrize("inside", [True, False])
def test_only_its_own_triton_is_renamed(
    matrix: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    file = tmp_path / ("venv" if inside else "other") / "triton" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text('"""Triton."""\n__version__ = "3.9.0"\nx = 1\n', encoding="utf-8")
    monkeypatch.setattr(matrix, "said", lambda *_: f"{file}\n")
    if inside:
        matrix.rename(python, "3.10.0")
        assert "\n__version__ = '3.10.0'\nx = 1\n" in file.read_text(encoding="utf-8")
    else:
        with pytest.raises(SystemExit, match="another environment"):
            matrix.rename(python, "3.10.0")
        assert "3.9.0" in file.read_text(encoding="utf-8")
