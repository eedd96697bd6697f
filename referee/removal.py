"""Remove a directory tree that a job made, however deep and oddly protected it is."""

from __future__ import annotations

import contextlib
import os

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(root: str) -> None:
    """Remove `root` and everything in it, following no link. What cannot be removed is left.

    Walks by descriptor, one level at a time: no path grows long, and nothing recurses. Nobody else may be changing the tree.
    """
    with contextlib.suppress(OSError):
        here = os.open(root, _DIRECTORY)
        names: list[str] = []
        waiting = [_unlink_files(here)]
        while waiting:
            step = _descend(here, waiting[-1].pop()) if waiting[-1] else None
            if step is not None:
                os.close(here)
                here, name = step
                names.append(name)
                waiting.append(_unlink_files(here))
            elif not waiting[-1]:
                waiting.pop()
                if names:
                    above = os.open("..", _DIRECTORY, dir_fd=here)
                    os.close(here)
                    here = above
                    with contextlib.suppress(OSError):
                        os.rmdir(names.pop(), dir_fd=here)
        os.close(here)
        os.rmdir(root)


def _descend(here: int, name: str) -> tuple[int, str] | None:
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700, dir_fd=here)
        return os.open(name, _DIRECTORY, dir_fd=here), name
    return None


def _unlink_files(here: int) -> list[str]:
    """Remove what is no directory; returns the directories' names."""
    with os.scandir(here) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, nested in entries:
        if not nested:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=here)
    return [name for name, nested in entries if nested]
