"""The files that hold what llama.cpp said: one for each process of kmint, and the newest few are kept."""

from __future__ import annotations

import os
from pathlib import Path

from kmint_tui import paths

KEPT = 10


def own_log() -> Path:
    """The file for the smith's words of this process, in a folder that is made if need be; the oldest others go.

    Raises StorageError.
    """
    folder = paths.private_dir(paths.log_dir())
    for old in sorted(folder.glob("smith-*.log"), key=_changed)[: -KEPT + 1]:
        old.unlink(missing_ok=True)
    return folder / f"smith-{os.getpid()}.log"


def _changed(path: Path) -> float:
    """When it was written to; another kmint may just have removed it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
