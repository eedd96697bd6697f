"""The wheel holds everything an installed kmint needs, and nothing of the checkout's own business."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (built,) = folder.glob("*.whl")
    return built


def test_data_files_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"kmint_tui/models/models.toml", "kmint_tui/py.typed", "referee/py.typed", "convert/py.typed"} <= names
    assert {Path(name).parts[0] for name in names if ".dist-info" not in name} == {"kmint_tui", "referee", "convert"}
    in_tree = {str(path.relative_to(ROOT)) for package in ("kmint_tui", "referee", "convert") for path in (ROOT / package).rglob("*.py")}
    assert in_tree <= names


def test_the_embedded_smith_is_in_the_wheel(wheel: Path) -> None:
    models = [info for info in zipfile.ZipFile(wheel).infolist() if info.filename.startswith("kmint_tui/smith/embedded/")]
    sizes = [info.file_size for info in models if info.filename.endswith(".gguf")]
    assert len(sizes) == 1
    assert sizes[0] <= 16 << 20


def test_the_packaged_registry_is_read_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from pathlib import Path; from kmint_tui.models import registry;"
        "print(registry.__file__, registry.load(Path('none')).get('embedded').id)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "kmint_tui/models/registry.py"), "embedded"]
