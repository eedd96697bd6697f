"""Downloads a smith from the hub in a thread, with progress and a way to cancel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.core.jobs import Job
from kmint_tui.core.smiths import DRAFTS
from kmint_tui.models import download, hub
from kmint_tui.models.check import check, check_template, facts
from kmint_tui.models.fit import Fit, assess
from kmint_tui.models.registry import ModelEntry
from kmint_tui.models.remote import Remote

_EVERY_SECONDS = 0.1


PULLING = "pulling "
"""Start of the title of a job that fetches a model, the only one that uses the network."""


@dataclass(frozen=True)
class Pulled:
    """The progress of a download: bytes of all bytes, and bytes a second of this run.

    `total` is 0 until the size is known.
    """

    model: str
    done: int
    total: int
    rate: float


class Pull:
    """One download: `look`, then `fetch`, in one thread. Another thread cancels `job`."""

    def __init__(self, entry: ModelEntry, report: Callable[[Pulled], object], job: Job) -> None:
        self.entry, self.job = entry, job
        self._report = report
        self._began = self._said = 0.0
        self._first = -1

    def look(self, *, offline: str | None) -> tuple[Remote, Fit]:
        """The file to fetch, and its fit in memory by the head of the file. Raises Cancelled,
        KmintError.
        """
        self._report(Pulled(self.entry.id, 0, 0, 0.0))
        remote = hub.find(self.entry, offline=offline)
        self.job.go_on()
        header, name = download.head(remote, offline=offline), Path(remote.name)
        self.job.go_on()
        check_template(name, header)
        return remote, assess(facts(name, header), drafts=DRAFTS, max_tokens=self.entry.max_tokens)

    def fetch(self, remote: Remote, *, offline: str | None) -> Path:
        """Fetch and check the file. Raises Cancelled and KmintError; a later download goes on from
        there.
        """
        self.job.go_on()
        folder = paths.private_dir(paths.models_dir() / self.entry.id)
        self._began = time.monotonic()
        path = download.fetch(remote, folder, progress=self._progress, offline=offline)
        check(path)
        return path

    def _progress(self, done: int, total: int) -> None:
        self.job.go_on()
        now = time.monotonic()
        if self._first < 0:
            self._first = done
        if now - self._said >= _EVERY_SECONDS:
            self._said = now
            self._report(
                Pulled(
                    self.entry.id, done, total, (done - self._first) / max(now - self._began, 1e-6)
                )
            )
