"""Inductor's choices of configurations for baselines, where several builders disturbed each other.

The choices of such a phase are removed at its end. A mark in the folder says when the phase began,
so that the choices of a killed process are removed too, before anything is timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.errors import storage_error
from kmint_tui.history.store import is_gone, own_process

CHOICES = "*.best_config"
"""Inductor's files with the configuration that its autotuner chose for a kernel."""
MARK = "building"


@contextmanager
def disturbed(folder: Path) -> Iterator[None]:
    """Forget the choices that are made in this folder meanwhile. Raises StorageError."""
    paths.private_dir(folder)
    mark = folder / f"{MARK}-{own_process().replace(' ', '-')}"
    try:
        files.write_text(mark, own_process())
    except OSError as error:
        raise storage_error(mark, error) from error
    try:
        yield
    finally:
        _forget(folder, mark)


def forget_left(folder: Path) -> None:
    """Forget the choices of builders whose command was killed."""
    for mark in folder.glob(f"{MARK}-*"):
        with suppress(OSError):
            if is_gone(mark.read_text(encoding="utf-8")):
                _forget(folder, mark)


def _forget(folder: Path, mark: Path) -> None:
    """Remove the choices since the mark was made, then the mark."""
    with suppress(OSError):
        began = mark.stat().st_mtime
        for file in folder.rglob(CHOICES):
            if file.stat().st_mtime >= began:
                file.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
