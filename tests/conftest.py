"""What every test shares: a private place for kmint's files, and the gpu marker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Two spinning threads of a library are many times slower than one while anything else runs on the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def kmint_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A KMINT_HOME of the test's own, so that no test reads or writes the user's files."""
    home = tmp_path_factory.mktemp("home") / "kmint"
    monkeypatch.setenv("KMINT_HOME", str(home))
    for name in ("KMINT_MODELS_DIR", "KMINT_OFFLINE", "HF_HUB_OFFLINE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where no CUDA device answers."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
