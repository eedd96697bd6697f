"""Fetching a smith from the hub, in a thread, with progress at a readable pace and a way to cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.models import download
from kmint_tui.models.check import check
from kmint_tui.models.registry import ModelEntry

_EVERY_SECONDS = 0.1


@dataclass(frozen=True)
class Pulled:
    """How far a pull got: bytes of all, and bytes a second of this run; 0 bytes in all means that it is not known yet."""

    model: str
    done: int
    total: int
    rate: float


class Cancelled(Exception):
    """Somebody cancelled the pull; what arrived is kept for the next one."""


class Pull:
    """One pull. `fetch` in one thread, `cancel` from any other."""

    def __init__(self, entry: ModelEntry, report: Callable[[Pulled], object]) -> None:
        self.entry = entry
        self._report = report
        self._cancelled = threading.Event()
        self._began = self._said = 0.0
        self._first = -1

    def cancel(self) -> None:
        """Have `fetch` raise Cancelled at its next block."""
        self._cancelled.set()

    def fetch(self, *, offline: str | None) -> Path:
        """Fetch and check the file. Raises Cancelled, and what `download.find` and `download.fetch` raise."""
        self._report(Pulled(self.entry.id, 0, 0, 0.0))
        remote = download.find(self.entry, offline=offline)
        self._refuse_when_cancelled()
        folder = paths.private_dir(paths.models_dir() / self.entry.id)
        self._began = time.monotonic()
        path = download.fetch(remote, folder, progress=self._progress, offline=offline)
        check(path)
        return path

    def _progress(self, done: int, total: int) -> None:
        self._refuse_when_cancelled()
        now = time.monotonic()
        if self._first < 0:
            self._first = done
        if now - self._said >= _EVERY_SECONDS:
            self._said = now
            self._report(Pulled(self.entry.id, done, total, (done - self._first) / max(now - self._began, 1e-6)))

    def _refuse_when_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
