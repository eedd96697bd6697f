"""The smith's log files: one a process, the newest few kept, several processes in one folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.smith.engine import LOGS_KEPT, own_log


def test_the_newest_few_are_kept() -> None:
    folder = paths.private_dir(paths.log_dir())
    for number in range(LOGS_KEPT + 4):
        log = folder / f"smith-{number}.log"
        log.write_text("words")
        os.utime(log, (number, number))
    own_log().write_text("own")
    kept = {f"smith-{number}.log" for number in range(5, LOGS_KEPT + 4)} | {
        f"smith-{os.getpid()}.log"
    }
    assert {path.name for path in folder.iterdir()} == kept and len(kept) == LOGS_KEPT


def test_a_log_that_another_kmint_just_removed_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = paths.private_dir(paths.log_dir())
    (folder / "smith-1.log").write_text("words")
    monkeypatch.setattr(
        Path,
        "glob",
        lambda self, pattern: iter(
            [folder / f"smith-{number}.log" for number in range(LOGS_KEPT + 4)]
        ),
    )
    assert own_log().parent == folder
