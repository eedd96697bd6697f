"""Takes fetched files out of the store, and never from under another process that is fetching one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from kmint_tui.errors import StorageError, storage_error
from kmint_tui.models.part import locked


def take_out(name: str, files: Sequence[Path], locks: Sequence[Path]) -> None:
    """Delete `files` (links only as links) and then the `locks` that downloads hold. Raises StorageError, before anything is deleted
    where `name` is being fetched."""
    path = None
    try:
        with contextlib.ExitStack() as held:
            for path in locks:
                held.enter_context(locked(path, wait=False))
            for path in (*files, *locks):
                path.unlink(missing_ok=True)
    except BlockingIOError as error:
        raise StorageError(f"{name} is being fetched by another process", fix="let it end, or stop it, and then remove again") from error
    except OSError as error:
        raise storage_error(path or Path(name), error) from error
