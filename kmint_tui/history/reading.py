"""Looking at the history where it cannot be written: on a full disk, or on a read-only mount."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from kmint_tui.errors import StorageError
from kmint_tui.history.database import Busy

Store = TypeVar("Store")


@contextmanager
def for_reading(path: Path, kind: Callable[[Path], AbstractContextManager[Store]]) -> Iterator[Store]:
    """What `kind` makes of the history at `path` (`History`, `Crowns`), for looking at only.

    Where it cannot be written, that is of a copy in the temporary folder, because opening the file itself writes beside it. Raises
    what `connect` raises.
    """
    with ExitStack() as opened:
        try:
            store = opened.enter_context(kind(path))
        except Busy:
            raise
        except StorageError as error:
            copy = Path(opened.enter_context(TemporaryDirectory())) / path.name
            try:
                for suffix in ("", "-wal"):
                    if path.with_name(path.name + suffix).exists():
                        shutil.copyfile(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
            except OSError:
                raise error from None
            store = opened.enter_context(kind(copy))
        yield store
