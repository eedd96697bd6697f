"""A kernel in the user's own editor: the place of the copy, and the editor's command."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit

_USUAL = ("nano", "vim", "vi")


def editor() -> list[str]:
    """The words that start the user's editor. Raises EnvironmentUnfit where there is none."""
    for name in ("VISUAL", "EDITOR"):
        words = shlex.split(os.environ.get(name, ""))
        if words and shutil.which(words[0]):
            return words
    for name in _USUAL:
        if shutil.which(name):
            return [name]
    raise EnvironmentUnfit("no editor is here", fix="set EDITOR to a program, such as nano")


def copy_to_edit(source: str, name: str) -> Path:
    """Write the source to a separate private file below kmint's data, and return its path."""
    folder = paths.private_dir(paths.data_dir() / "edited")
    path = folder / f"{name}.py"
    number = 1
    while path.exists() and path.read_text(encoding="utf-8") != source:
        number += 1
        path = folder / f"{name}-{number}.py"
    files.write_text(path, source)
    return path


def edited(words: list[str], path: Path) -> bool:
    """Run the editor on the file; True when the text changed."""
    before = path.read_bytes()
    subprocess.run([*words, str(path)], check=False)
    return path.read_bytes() != before
