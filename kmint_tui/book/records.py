"""A book as frozen dataclasses: places, entries with their figures, and the kernels' texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kmint_tui.history.records import Author

Origin = Literal["own", "imported", "shipped"]
"""Where an entry is from: built here, from another user's book, or from the package."""
TEMPLATE = "kmint's template"


@dataclass(frozen=True, order=True)
class Place:
    """An operation at one shape and dtype.

    `shape` is rows and columns such as `8192x4096`. For an operation whose examples say its sizes
    it is the name of the timed case.
    """

    op: str
    shape: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} {self.shape} {self.dtype}"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The measured part of a verdict at one place.

    `ratio` is the time of the fastest baseline `bar` over the kernel's own, with a 95 % interval.
    `us` is the kernel's device time in microseconds, `floor_share` the time of a copy of the same
    bytes over it. `baselines` has the microseconds of each baseline.
    """

    verdict: str
    ratio: float
    low: float | None
    high: float | None
    bar: str
    us: float
    floor_share: float | None
    baselines: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The best kernel of one place: the digest of its text, its makers, and its figures.

    `smith` names the model whose draft it is, or from whose draft the tuner made it. It is empty
    for a kernel of the template. `changes` are its structure and the changed launch constants.
    `versions` has kmint, torch, triton, its driver and the digest of the referee.
    """

    op: str
    shape: str
    dtype: str
    source_sha256: str
    author: Author
    smith: str
    smith_sha256: str
    changes: str
    figures: Figures
    versions: Mapping[str, str]
    commit: str
    date: str

    @property
    def place(self) -> Place:
        """The operation, the shape and the dtype."""
        return Place(self.op, self.shape, self.dtype)

    @property
    def maker(self) -> str:
        """The author in words."""
        made_by = self.smith or TEMPLATE
        if self.author == "tuner":
            return f"the tuner ({self.changes}), from {made_by}"
        return f"{made_by} ({self.changes})" if self.changes else made_by

    def made_with(self, torch: str | None, triton: str | None) -> bool:
        """Whether the figures are of these versions of torch and Triton."""
        return (self.versions.get("torch"), self.versions.get("triton")) == (torch, triton)


@dataclass(frozen=True, kw_only=True)
class Book:
    """The entries of one kind of device, one for each place, and the kernels' texts by digest."""

    device: str
    entries: tuple[Entry, ...]
    sources: Mapping[str, str]

    def source(self, entry: Entry) -> str:
        """The text of an entry's kernel."""
        return self.sources[entry.source_sha256]


def digest(source: str) -> str:
    """The SHA-256 of a kernel's text, in hex."""
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()


def merged(device: str, books: tuple[Book, ...]) -> Book:
    """One book of several; of two entries for one place, that of the first book stays."""
    found: dict[Place, Entry] = {}
    sources: dict[str, str] = {}
    for book in books:
        for entry in book.entries:
            if entry.place not in found:
                found[entry.place] = entry
                sources[entry.source_sha256] = book.source(entry)
    return Book(
        device=device, entries=tuple(found[place] for place in sorted(found)), sources=sources
    )
