"""Starts kmint's Python child processes. Neither the current folder nor the user's variables decide
which code they run.

`-I` hides the current folder, the PYTHON* variables and the user's site folder; `.pth` files stay.
The child imports from the folders of this process, so that both find the same packages. `referee`
and `convert` stand alone, so each has a copy of this file; a test keeps them equal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Native libraries look for plugins in the current folder, so every child starts here.
WORKING_FOLDER = "/"


def command(start: str, *arguments: str, path: Sequence[str] | None = None) -> list[str]:
    """The command that runs the code `start` with `arguments` in `sys.argv[1:]`, from
    WORKING_FOLDER.

    `path` replaces `import_path()`. The interpreter's folders and kmint's follow if they are
    missing.
    """
    given = import_path() if path is None else list(path)
    own = str(Path(__file__).resolve().parents[1])
    folders = (
        f"given = {given!r}; "
        f"sys.path[:] = given + [one for one in [*sys.path, {own!r}] if one not in given]"
    )
    flags = ["-I", "-B"] if sys.dont_write_bytecode else ["-I"]
    return [sys.executable, *flags, "-c", f"import sys; {folders}; {start}", *arguments]


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as `python -m` would, from WORKING_FOLDER."""
    return command(
        f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)",
        *arguments,
    )


def import_path() -> list[str]:
    """Folders that this process imports from, without the current and relative ones."""
    return [entry for entry in sys.path if os.path.isabs(entry) and not _is_current_folder(entry)]


def _is_current_folder(entry: str) -> bool:
    try:
        return os.path.samefile(entry, ".")
    except OSError:
        return False
