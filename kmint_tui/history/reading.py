"""Reads the history where kmint cannot write it: on a full disk, or on a read-only mount."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from convert.files import temporary_folder
from kmint_tui.errors import StorageError
from kmint_tui.history.database import Busy
from kmint_tui.history.store import History

Store = TypeVar("Store")


def read_history(path: Path) -> AbstractContextManager[History]:
    """The history at `path`, only to read. Raises the errors of `connect`."""
    return for_reading(path, History)


@contextmanager
def for_reading(
    path: Path, kind: Callable[[Path], AbstractContextManager[Store]]
) -> Iterator[Store]:
    """A store (`History`, `Crowns`) of the history at `path`, only to read.

    SQLite writes files next to the database when it opens it. Where it cannot, the store reads a
    copy in the temporary folder. Raises the errors of `connect`.
    """
    with ExitStack() as opened:
        try:
            store = opened.enter_context(kind(path))
        except Busy:
            raise
        except StorageError as error:
            copy = opened.enter_context(temporary_folder()) / path.name
            try:
                for suffix in ("", "-wal"):
                    if path.with_name(path.name + suffix).exists():
                        shutil.copyfile(
                            path.with_name(path.name + suffix), copy.with_name(copy.name + suffix)
                        )
            except OSError:
                raise error from None
            store = opened.enter_context(kind(copy))
        yield store
