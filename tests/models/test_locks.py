"""A lock that is removed while others wait for it still admits one of them at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.models.part import locked

# Each process enters several times, alone if the lock works, and removes the lock file.
CHILD = """
import os, sys
from pathlib import Path
from kmint_tui.models.part import locked
lock, inside = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(200):
    with locked(lock):
        inside.mkdir()
        inside.rmdir()
        lock.unlink()
"""


def test_only_one_is_inside_although_the_lock_is_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "lock"), str(tmp_path / "inside")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [(child.communicate()[1], child.returncode) for child in children]
    assert ends == [("", 0)] * 4


def test_a_held_lock_is_not_waited_for_on_request(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock"),
        pytest.raises(BlockingIOError),
        locked(tmp_path / "lock", wait=False),
    ):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass
