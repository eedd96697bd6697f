"""The wheel holds everything an installed kmint needs, and nothing of the checkout's own business."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kmint_tui", "referee", "convert")
IMPORTED_AS = {"llama-cpp-python": "llama_cpp", "nvidia-ml-py": "pynvml"}
ONLY_WHERE_INSTALLED = {"mcp", "peft", "ray", "transformers"}
"""Packages of `kmint mcp`, `--ray` and a proof of the converter, used where they are installed."""


def imported_modules() -> set[str]:
    """The top-level modules that shipped code imports, wherever in a file, of neither Python nor
    kmint."""
    nodes = [
        node
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    ]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - set(PACKAGES)


def test_dependencies_are_what_is_imported() -> None:
    declared = [
        Requirement(text).name
        for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    assert {
        IMPORTED_AS.get(name, name) for name in declared
    } == imported_modules() - ONLY_WHERE_INSTALLED


def test_jinja2_is_one_whose_sandbox_holds() -> None:
    """The chat templates of strangers run in it, and before 3.1.6 they could leave it
    (CVE-2025-27516)."""
    declared = [
        Requirement(text)
        for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    (jinja2,) = (requirement for requirement in declared if requirement.name == "jinja2")
    assert not jinja2.specifier.contains("3.1.5") and jinja2.specifier.contains("3.1.6")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_data_files_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "kmint_tui/models/models.toml",
        "kmint_tui/py.typed",
        "referee/py.typed",
        "convert/py.typed",
    } <= names
    assert {"kmint_tui/agent/SKILL.md", "kmint_tui/agent/docs/verdicts.md"} <= names
    assert {"kmint_tui/models/requirements.txt", "kmint_tui/models/sbom.cdx.json"} <= names
    assert {Path(name).parts[0] for name in names if ".dist-info" not in name} == {
        "kmint_tui",
        "referee",
        "convert",
    }
    in_tree = {
        str(path.relative_to(ROOT))
        for package in ("kmint_tui", "referee", "convert")
        for path in (ROOT / package).rglob("*.py")
    }
    assert in_tree <= names


def test_the_embedded_smith_is_in_the_wheel(wheel: Path) -> None:
    models = [
        info
        for info in zipfile.ZipFile(wheel).infolist()
        if info.filename.startswith("kmint_tui/smith/embedded/")
    ]
    sizes = [info.file_size for info in models if info.filename.endswith(".gguf")]
    assert len(sizes) == 1
    assert sizes[0] <= 16 << 20


def test_the_packaged_registry_is_read_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from pathlib import Path; from kmint_tui.models import registry;"
        "print(registry.__file__, registry.load(Path('none')).get('embedded').id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "kmint_tui/models/registry.py"), "embedded"]
