"""Removes a directory tree that a job made, regardless of its depth and modes."""

from __future__ import annotations

import contextlib
import os

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WALKS = 5


def remove_tree(root: str) -> None:
    """Removes `root` and everything in it, without following links. Unremovable parts stay.

    It walks by descriptor, one level at a time: no path grows long, and nothing recurses. Another
    process may remove the same tree: a walk that loses its way starts again.
    """
    for _ in range(_WALKS):
        with contextlib.suppress(OSError):
            here = os.open(root, _DIRECTORY)
            try:
                _Walk(here).empty()
            finally:
                os.close(here)
            os.rmdir(root)
        if not os.path.lexists(root):
            return


class _Walk:
    """A depth-first walk below one open directory, with one further open descriptor at a time."""

    def __init__(self, root: int) -> None:
        self._here = os.dup(root)
        self._names: list[str] = []

    def empty(self) -> None:
        try:
            waiting = [_unlink_files(self._here)]
            while waiting:
                if waiting[-1]:
                    if self._descend(waiting[-1].pop()):
                        waiting.append(_unlink_files(self._here))
                else:
                    waiting.pop()
                    if self._names:
                        self._ascend()
        finally:
            os.close(self._here)

    def _descend(self, name: str) -> bool:
        try:
            os.chmod(name, 0o700, dir_fd=self._here)
            below = os.open(name, _DIRECTORY, dir_fd=self._here)
        except OSError:
            return False
        os.close(self._here)
        self._here = below
        self._names.append(name)
        return True

    def _ascend(self) -> None:
        above = os.open("..", _DIRECTORY, dir_fd=self._here)
        os.close(self._here)
        self._here = above
        with contextlib.suppress(OSError):
            os.rmdir(self._names.pop(), dir_fd=above)


def _unlink_files(here: int) -> list[str]:
    with os.scandir(here) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, nested in entries:
        if not nested:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=here)
    return [name for name, nested in entries if nested]
