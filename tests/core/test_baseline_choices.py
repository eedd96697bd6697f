"""Choices that builders made side by side are forgotten, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.core.baseline_choices import disturbed, forget_left
from kmint_tui.core.referee import open_referee

KILLED = """
import os, signal, sys
from pathlib import Path
from kmint_tui.core.baseline_choices import disturbed
with disturbed(Path(sys.argv[1])):
    Path(sys.argv[2]).write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Inductor's folder with a choice of an earlier day, and a compiled kernel."""
    inner = tmp_path / "inductor" / "ab"
    inner.mkdir(parents=True)
    for name in ("old.best_config", "kernel.cubin"):
        (inner / name).write_text("{}")
        os.utime(inner / name, (1e9, 1e9))
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


KEPT = ["kernel.cubin", "old.best_config"]


def test_choices_made_side_by_side_are_forgotten(folder: Path) -> None:
    with disturbed(folder):
        (folder / "inductor" / "new.best_config").write_text("{}")
        (folder / "inductor" / "new.cubin").write_text("")
        # The builders of a running command still need their mark.
        forget_left(folder)
        assert "new.best_config" in names(folder)
    assert names(folder) == sorted([*KEPT, "new.cubin"])


def test_choices_of_a_killed_build_are_forgotten(folder: Path) -> None:
    choice = folder / "inductor" / "new.best_config"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), str(choice)])
    assert done.returncode == -signal.SIGKILL and choice.exists()
    forget_left(folder)
    assert names(folder) == KEPT


def test_a_referee_opens_without_such_choices(
    kmint_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("kmint_tui.core.baseline_choices.forget_left", asked.append)
    with open_referee("any"):
        assert asked == [kmint_home / "cache" / "referee" / "baselines"]
