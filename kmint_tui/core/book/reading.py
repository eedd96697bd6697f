"""Books for readers: which one is open, its kernels by operation, and every entry in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from math import prod

from kmint_tui.book import store
from kmint_tui.book.records import Book, Entry, Origin, Place
from kmint_tui.core.book.saving import here

_SIZES = re.compile(r"(\d{1,12})x(\d{1,12})")


@dataclass(frozen=True)
class OpenBook:
    """A book, the origin of each entry, and all devices that have a book."""

    book: Book
    origins: Mapping[Place, Origin]
    devices: tuple[str, ...]

    @property
    def operations(self) -> tuple[OfOperation, ...]:
        """The entries by operation, in the order of their names."""
        ordered = sorted(self.book.entries, key=lambda entry: entry.op)
        return tuple(
            OfOperation(op, tuple(sorted(some, key=_by_size)))
            for op, some in groupby(ordered, key=lambda entry: entry.op)
        )

    @property
    def origin(self) -> str:
        """The number of entries of each origin, in words."""
        counts = Counter(self.origins.values())
        return ", ".join(f"{counts[one]} {one}" for one in store.ORIGINS if counts[one])

    def other(self, by: int) -> str:
        """The device that is `by` places after that of this book, the first after the last."""
        at = self.devices.index(self.book.device)
        return self.devices[(at + by) % len(self.devices)]


@dataclass(frozen=True)
class OfOperation:
    """The entries of one operation, by columns and rows."""

    op: str
    entries: tuple[Entry, ...]

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return float(prod(one.figures.ratio ** (1 / len(self.entries)) for one in self.entries))

    @property
    def lost(self) -> tuple[Entry, ...]:
        """The entries that are slower than the fastest baseline."""
        return tuple(one for one in self.entries if one.figures.verdict == "loss")


def open_book(device: str | None = None) -> OpenBook | None:
    """The book of `device`, else of the GPU here, else the first one; None without any.

    Raises EnvironmentUnfit for a damaged file.
    """
    devices = store.devices()
    if not devices:
        return None
    wanted = device if device is not None else here()
    book, origins = store.load(wanted if wanted in devices else devices[0])
    return OpenBook(book, origins, devices)


def named_book(device: str | None) -> tuple[Book, dict[Place, Origin]]:
    """The book that `--device` names, and the origin of each entry. Raises UsageError."""
    own = here() if device is None else None
    known = store.devices() if own is not None else ()
    return store.load(store.named(device, own if own in known else None))


def facts(entry: Entry, origins: Mapping[Place, Origin]) -> list[tuple[str, str]]:
    """Everything that is known of an entry, by name."""
    figures = entry.figures
    bounded = figures.low is not None and figures.high is not None
    interval = f" ({figures.low:.3f} to {figures.high:.3f})" if bounded else ""
    others = ", ".join(f"{name} {us:.1f}" for name, us in figures.baselines.items())
    versions = ", ".join(f"{name} {value}" for name, value in entry.versions.items())
    return [
        ("ratio", f"{figures.ratio:.3f}x {figures.bar}{interval}, {figures.verdict}"),
        ("device time", f"{figures.us:.1f} us; {share(entry)} of the copy floor"),
        ("baselines, us", others),
        ("by", entry.maker),
        ("from", f"{origins[entry.place]}, {entry.date}, commit {entry.commit or 'not known'}"),
        ("versions", versions),
        ("sha256", entry.source_sha256),
    ]


def share(entry: Entry) -> str:
    """The share of the copy floor in percent; empty where it is not known."""
    known = entry.figures.floor_share
    return "" if known is None else f"{100 * known:.0f} %"


def _by_size(entry: Entry) -> tuple[object, ...]:
    """The place among entries of one operation; cases with names come after sizes."""
    found = _SIZES.fullmatch(entry.shape)
    sizes = (0, int(found[2]), int(found[1])) if found else (1, 0, 0)
    return (*sizes, entry.shape, entry.dtype)
