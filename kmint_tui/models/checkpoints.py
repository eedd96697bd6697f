"""Lists and removes the checkpoints and adapters that conversions fetched from the hub.

Each lies in `hub/OWNER--NAME/COMMIT` below the models' folder, where `snapshot.py` puts it. They
are listed and removed by repository, with all commits. A removal deletes the fetched files, which
have a lock next to them, and the remains of interrupted downloads. Other files stay, and so does
their folder.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models.part import notes_of, take_out


@dataclass(frozen=True)
class Checkpoint:
    """A repository with files in `folder`: `nbytes` in all, finished or not."""

    repo: str
    folder: Path
    nbytes: int


def home() -> Path:
    """The folder of all of them."""
    return paths.models_dir() / "hub"


def folder_of(repo: str) -> Path:
    """The folder of a repository OWNER/NAME."""
    return home() / repo.replace("/", "--")


def fetched() -> tuple[Checkpoint, ...]:
    """Every repository with files here, by name. Unreadable folders count as empty."""
    place = home()
    folders = (
        sorted(path for path in place.iterdir() if path.is_dir() and "--" in path.name)
        if place.is_dir()
        else []
    )
    found = ((path, [_size(file) for file in _files(path)]) for path in folders)
    return tuple(
        Checkpoint(path.name.replace("--", "/", 1), path, sum(sizes))
        for path, sizes in found
        if sizes
    )


def find(repo: str) -> Checkpoint | None:
    """The files of a repository here; None without any."""
    return next((checkpoint for checkpoint in fetched() if checkpoint.repo == repo), None)


def remove(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Delete the fetched files of a repository; returns them, parts included.

    Raises ModelError when nothing was fetched, StorageError, also during a fetch.
    """
    present = set(_files(checkpoint.folder))
    locks = sorted(
        path for path in present if path.name.startswith(".") and path.name.endswith(".lock")
    )
    targets = [path.with_name(path.name.removeprefix(".").removesuffix(".lock")) for path in locks]
    files = [
        path for target in targets for path in (target, _beside(target, ".part")) if path in present
    ]
    notes = [
        note for target in targets for note in (*notes_of(target), _beside(target, ".part.json"))
    ]
    if not locks:
        fix = f"look into {checkpoint.folder} and remove it by hand"
        raise ModelError(
            f"nothing in the store's folder of {checkpoint.repo} was fetched by kmint", fix=fix
        )
    take_out(checkpoint.repo, [*files, *notes], locks)
    for folder, _, _ in os.walk(checkpoint.folder, topdown=False):
        with contextlib.suppress(OSError):  # the folder holds a file of another program
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
