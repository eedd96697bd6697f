"""Importing, bundling and removing model files through the real command line, on files and stores of every awkward kind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kmint_tui.errors import ModelError
from kmint_tui.models import bundle
from tests.tiny_models import llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model") / "Tiny Modèle.gguf")


def kmint(home: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {"KMINT_HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(home)}
    command = [sys.executable, "-m", "kmint_tui", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_link_verify_and_remove_leave_the_original(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "a home with spaces é"
    answer = json.loads(kmint(home, "models", "import", str(model), "--as", "minicpm5-1b", "--json").stdout)
    assert answer["linked"] and Path(answer["path"]).resolve() == model.resolve()
    again = json.loads(kmint(home, "models", "import", str(model), "--as", "minicpm5-1b", "--json").stdout)
    assert again["reason"] == "it is in the store already"
    assert "unknown" in kmint(home, "models", "verify", "minicpm5-1b").stdout
    kmint(home, "models", "rm", "minicpm5-1b", "--yes")
    assert model.exists()
    assert "not in the store" in kmint(home, "models", "rm", "minicpm5-1b", "--yes", code=4).stderr


def test_a_bundle_carries_a_model_to_another_home(model: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    kmint(here, "models", "import", str(model), "--as", "minicpm5-1b", "--copy")
    kmint(here, "models", "bundle", "minicpm5-1b", "--out", str(tmp_path / "b.tar"))
    answer = json.loads(kmint(there, "models", "import", str(tmp_path / "b.tar"), "--json").stdout)
    assert answer["id"] == "minicpm5-1b" and Path(answer["path"]).read_bytes() == model.read_bytes()
    with tarfile.open(tmp_path / "b.tar") as archive:
        assert "llama_cpp_python==0.3.36" in archive.extractfile("requirements.txt").read().decode()  # type: ignore[union-attr]


def test_a_file_that_is_not_a_model_is_refused_with_the_reason(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:2000])
    assert "not a sound GGUF" in kmint(tmp_path, "models", "import", str(broken), code=4).stderr
    assert "does not exist" in kmint(tmp_path, "models", "import", str(tmp_path / "none.gguf"), code=4).stderr
    assert "--as ID" in kmint(tmp_path, "models", "import", str(model), code=4).stderr
    assert not list(tmp_path.rglob("*.partial"))


def test_another_file_under_the_same_name_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    kmint(tmp_path, "models", "import", str(model), "--as", "minicpm5-1b", "--copy")
    other = tmp_path / "other" / model.name
    other.parent.mkdir()
    shutil.copy(model, other)
    with other.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x01\x02\x03\x04")
    assert "another file" in kmint(tmp_path, "models", "import", str(other), "--as", "minicpm5-1b", code=6).stderr


@pytest.mark.parametrize("damage", ["truncated", "digest", "path", "manifest"])
def test_a_damaged_bundle_leaves_nothing(model: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "b.tar"
    bundle.write_bundle("minicpm5-1b", model, path)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "digest":
        data[-20_000] ^= 1
    elif damage == "path":
        data = bytearray(bytes(data).replace(b'"file": "', b'"file": "../'))
    else:
        data = bytearray(bytes(data).replace(b"kmint.bundle/1", b"kmint.bundle/9"))
    path.write_bytes(data)
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError):
        bundle.unpack(path, tmp_path / "out")
    if damage != "truncated":
        assert not list((tmp_path / "out").iterdir())
