"""The folders that the user named for an agent: nothing outside them is read or written."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.core.kernel_file import MAX_BYTES, kernel_text
from kmint_tui.errors import UsageError

OUTSIDE = "outside the folders of this server"
_UNREADABLE = "draft not readable"


@dataclass(frozen=True)
class Folders:
    """Real paths, without links."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, named: Sequence[Path]) -> Folders:
        """The folders by their real paths. Raises UsageError for a path that is no folder."""
        found = []
        for one in named:
            real = Path(os.path.realpath(paths.expanded(one)))
            if not real.is_dir():
                raise UsageError(
                    f"--folder {one} is not a folder", fix="make it first, or name another one"
                )
            found.append(real)
        return cls(tuple(found))

    def inside(self, text: str) -> Path:
        """The real path that `text` means, from the first folder on. Raises UsageError for one
        outside.
        """
        if not self.roots:
            raise UsageError(
                "this server has no folder, so it reads and writes no file", title=OUTSIDE, fix=_FIX
            )
        if "\0" in text:
            raise UsageError("the path holds a null byte", title="path not usable")
        real = Path(os.path.realpath(self.roots[0] / paths.expanded(text)))
        self._check(real, text)
        return real

    def kernel(self, text: str) -> str:
        """The text of a kernel file inside. Raises UsageError."""
        return kernel_text(self.content(text, most_bytes=MAX_BYTES), text)

    def content(self, text: str, *, most_bytes: int) -> bytes:
        """The bytes of a regular file inside the folders, with at most one byte over the limit.

        Raises UsageError. The check is repeated on the open file, because a link may change
        meanwhile.
        """
        path = self.inside(text)
        try:
            # Opening a pipe would block the server.
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise UsageError(
                f"{text} cannot be read: {error.strerror}", title=_UNREADABLE
            ) from None
        try:
            self._check(Path(os.path.realpath(f"/proc/self/fd/{number}")), text)
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise UsageError(f"{text} cannot be read: it is no regular file", title=_UNREADABLE)
            with open(number, "rb", closefd=False) as stream:
                return stream.read(most_bytes + 1)
        except OSError as error:
            raise UsageError(
                f"{text} cannot be read: {error.strerror}", title=_UNREADABLE
            ) from None
        finally:
            os.close(number)

    def _check(self, real: Path, text: str) -> None:
        if not any(real.is_relative_to(root) for root in self.roots):
            raise UsageError(
                f"{text} is {OUTSIDE}: {', '.join(map(str, self.roots))}", title=OUTSIDE, fix=_FIX
            )


_FIX = "the user names folders with `kmint mcp --folder DIR`"
