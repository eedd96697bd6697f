"""Judges every entry of a book again on the card here, and compares the ratios. Nothing is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kmint_tui.book.records import Book, Entry
from kmint_tui.core.book.contest import timing_at
from kmint_tui.core.book.planning import Work, places_of, timed_places, work_of
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.core.book.baselines import Builders
    from kmint_tui.core.judges import Opened


@dataclass(frozen=True, kw_only=True)
class Rejudged:
    """One entry, and its ratio now with the interval; `reason` says why there is none."""

    entry: Entry
    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    reason: str

    @property
    def difference(self) -> float | None:
        """The ratio now over the ratio then, minus 1."""
        return self.ratio / self.entry.figures.ratio - 1 if self.ratio else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the entry's own text."""
        then = self.entry.figures.ratio
        values = {name: value for name, value in asdict(self).items() if name != "entry"}
        place = asdict(self.entry.place)
        return {**place, "then": then, **values, "difference": self.difference}


@dataclass(frozen=True)
class _Job:
    """One kernel with its entries, all of one operation."""

    source: str
    work: Work
    entries: tuple[Entry, ...]


def rejudge(
    opened: Opened,
    book: Book,
    names: Sequence[str] | None,
    on_found: Callable[[Rejudged], object],
    builders: Builders | None = None,
) -> list[Rejudged]:
    """Every entry of these operations, or of all, judged again at its shape.

    `on_found` gets each as it comes, in this thread. Raises UsageError where the book has none of
    them.
    """
    jobs, found = _jobs(book, names)
    if not jobs and not found:
        wanted = ", ".join(names) if names else "any operation"
        raise UsageError(f"the book of {book.device} has no kernel of {wanted}")
    for one in found:
        on_found(one)
    if builders is not None:
        builders.build(places_of({job.work: None for job in jobs}))
    stop = threading.Event()
    with ThreadPoolExecutor(opened.threads) as pool:
        futures = [pool.submit(_judged, opened, job, stop) for job in jobs]
        try:
            for future in as_completed(futures):
                for one in future.result():
                    on_found(one)
                    found.append(one)
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
    return sorted(found, key=lambda one: one.entry.place)


def _jobs(book: Book, names: Sequence[str] | None) -> tuple[list[_Job], list[Rejudged]]:
    """The kernels to judge, each once at all of its shapes, and the entries that cannot be judged."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in book.entries:
        if names is None or entry.op in names:
            groups.setdefault((entry.op, entry.source_sha256), []).append(entry)
    jobs, unfit = list[_Job](), list[Rejudged]()
    for entries in groups.values():
        try:
            jobs.append(_Job(book.source(entries[0]), work_of(entries), tuple(entries)))
        except UsageError as error:
            unfit += [_without(entry, "error", error.message) for entry in entries]
    return jobs, unfit


def _without(entry: Entry, verdict: str, reason: str) -> Rejudged:
    """An entry that has no ratio now."""
    return Rejudged(entry=entry, verdict=verdict, ratio=None, low=None, high=None, reason=reason)


def _judged(opened: Opened, job: _Job, stop: threading.Event) -> list[Rejudged]:
    if stop.is_set():
        return []
    verdict = opened.judge.judge(job.source, job.work.task, level="full", strict=True)
    cells = {timed.place: timed.case.name for timed in timed_places(job.work)}
    found = []
    for entry in job.entries:
        cell = cells.get(entry.place)
        timing = timing_at(verdict, cell) if cell is not None else None
        if timing is None:
            reason = verdict.reason if cell else "the operation has no such case any more"
            found.append(_without(entry, verdict.verdict, reason))
            continue
        interval = timing["ratio"]
        found.append(
            Rejudged(
                entry=entry,
                verdict=str(timing["decision"]),
                ratio=interval["ratio"],
                low=interval.get("low"),
                high=interval.get("high"),
                reason="",
            )
        )
    return found
