"""The checkpoints and adapters that conversions fetched from the hub: what lies in the store, and how to take it out again.

Each lies in `hub/OWNER--NAME/COMMIT` below the models' folder (`snapshot.py` puts it there). They are listed and removed by
repository, whatever its commits. A removal takes what was fetched, told by the lock that a download leaves beside each file,
and what is left of broken-off downloads; a file that somebody else put there stays, and so does its folder.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models.digest import RECORD
from kmint_tui.models.removal import take_out


@dataclass(frozen=True)
class Checkpoint:
    """A repository of which something lies in `folder`: `nbytes` in all, finished or not."""

    repo: str
    folder: Path
    nbytes: int


def home() -> Path:
    """Where they lie."""
    return paths.models_dir() / "hub"


def folder_of(repo: str) -> Path:
    """The folder of a repository OWNER/NAME."""
    return home() / repo.replace("/", "--")


def fetched() -> tuple[Checkpoint, ...]:
    """Every repository of which something is here, by name. Folders that cannot be read count as empty."""
    place = home()
    folders = sorted(path for path in place.iterdir() if path.is_dir() and "--" in path.name) if place.is_dir() else []
    found = ((path, [_size(file) for file in _files(path)]) for path in folders)
    return tuple(Checkpoint(path.name.replace("--", "/", 1), path, sum(sizes)) for path, sizes in found if sizes)


def find(repo: str) -> Checkpoint | None:
    """What is here of a repository; None when there is nothing."""
    return next((checkpoint for checkpoint in fetched() if checkpoint.repo == repo), None)


def remove(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Delete what was fetched of a repository; returns the files, parts included.

    Raises ModelError when nothing of it was fetched, StorageError, also while something of it is being fetched.
    """
    present = set(_files(checkpoint.folder))
    locks = sorted(path for path in present if path.name.startswith(".") and path.name.endswith(".lock"))
    targets = [path.with_name(path.name.removeprefix(".").removesuffix(".lock")) for path in locks]
    files = [path for target in targets for path in (target, _beside(target, ".part")) if path in present]
    notes = [_beside(target, ending) for target in targets for ending in (RECORD, ".part.json")]
    if not locks:
        fix = f"look into {checkpoint.folder} and remove it by hand"
        raise ModelError(f"nothing in the store's folder of {checkpoint.repo} was fetched by kmint", fix=fix)
    take_out(checkpoint.repo, [*files, *notes], locks)
    for folder, _, _ in os.walk(checkpoint.folder, topdown=False):
        with contextlib.suppress(OSError):  # it holds something that is not ours
            os.rmdir(folder)
    return tuple(files)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _files(folder: Path) -> list[Path]:
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
