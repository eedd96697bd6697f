"""A reviewer's demands on saved files: short lines, no path hacks, plain words, clean tools."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.save.saving import save
from referee.ops import get
from tests.save.conftest import (
    BY_KIND,
    OPAQUE,
    draft,
    passed_everywhere,
    save_quickly,
    session,
    source,
)
from tests.save.test_two_outputs import KERNELS, saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved kernel of every signature kind, and of functions with two outputs."""
    made = tmp_path_factory.mktemp("style")
    for name in (*BY_KIND.values(), *OPAQUE):
        save_quickly(name, made)
    for name in KERNELS:
        saved(name, made)
    return made


def test_no_line_is_long(folder: Path) -> None:
    long = [
        (file.name, number, line)
        for file in folder.glob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert long == []


def test_no_file_meddles_with_paths(folder: Path) -> None:
    for file in folder.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not any(word in text for word in ("sys.path", "importlib", "Path(", "exec(")), file


def test_the_first_line_says_it_in_plain_words(folder: Path) -> None:
    for file in folder.glob("*.py"):
        first, _, rest = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")
        assert first.endswith(".") and first[0].isupper() and len(first) <= 97, (file, first)
        assert not rest or rest.startswith("\n"), (file, first)


def test_the_receipt_at_the_top_has_five_parts(folder: Path) -> None:
    document = ast.get_docstring(ast.parse((folder / "softmax.py").read_text())) or ""
    words = [line.partition(":")[0] for line in document.splitlines() if ":" in line[:9]]
    assert words == ["What", "Inputs", "When", "Author", "Result"]
    assert "without a GPU" in document and "33001 columns" in document


def test_ruff_and_mypy_find_nothing(folder: Path) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null"]
    files = sorted(str(file.name) for file in folder.glob("*.py"))
    for command in ([*ruff, "--line-length", "100", "--extend-select", "E501,I,UP"], mypy):
        done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_test_in_a_package_of_the_project_imports_from_it(tmp_path: Path) -> None:
    """A folder with __init__.py is a package: its test finds the kernel there, and no other."""
    kernels = tmp_path / "project" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "__init__.py").touch()
    test = save_quickly("row_rmsnorm", kernels).files[1]
    assert "from .rmsnorm import" in test.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run([*command, "project"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_licence_is_the_first_line(tmp_path: Path) -> None:
    verdict = passed_everywhere("softmax")
    files = save(
        session("softmax"),
        draft(source("online_softmax"), verdict),
        get("softmax"),
        tmp_path,
        judge=lambda _: verdict,
        licence="Apache-2.0",
    ).files
    first = files[0].read_text(encoding="utf-8").splitlines()[0]
    assert first == "# SPDX-License-Identifier: Apache-2.0"


def test_every_field_of_a_receipt_is_in_its_schema(folder: Path) -> None:
    import json

    page = (Path(__file__).parents[2] / "docs" / "use-a-saved-kernel.md").read_text()
    receipt = json.loads((folder / "softmax.receipt.json").read_text())
    assert [name for name in receipt if f"`{name}`" not in page] == []
