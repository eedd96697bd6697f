"""The books of this machine: those of the package, those imported, and those built here.

Each kind of device has one file for each origin. Of two entries for one place, that built here goes
first, then the imported one, then that of the package.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.book.document import BadBook, parse_book, read_book, text_of
from kmint_tui.book.records import Book, Entry, Origin, Place, digest, merged
from kmint_tui.errors import EnvironmentUnfit, UsageError, storage_error

SHIPPED = Path(__file__).with_name("shipped")
"""The books of the package."""
ORIGINS: tuple[Origin, ...] = ("own", "imported", "shipped")


def folder(origin: Origin) -> Path:
    """The folder of one origin's books."""
    if origin == "shipped":
        return SHIPPED
    base = paths.data_dir() / "books"
    return base if origin == "own" else base / "imported"


def file_name(device: str) -> str:
    """The name of a device's file: `nvidia-h200.json`."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")[:80]
    # Names that differ only in other characters must not share a file.
    plain = len(name) < 80 and re.fullmatch(r"[A-Za-z0-9]+( [A-Za-z0-9]+)*", device)
    return f"{name}.json" if plain else f"{name or 'device'}-{digest(device)[:8]}.json"


def read(origin: Origin, device: str) -> Book:
    """The book of one origin, empty where there is none.

    Raises EnvironmentUnfit for a damaged file.
    """
    path = folder(origin) / file_name(device)
    found = _read(path) if path.exists() else None
    return found or Book(device=device, entries=(), sources={})


def devices() -> tuple[str, ...]:
    """The kinds of device that have a book, in order. Raises EnvironmentUnfit."""
    found = {
        _read(path).device
        for origin in ORIGINS
        if folder(origin).is_dir()
        for path in sorted(folder(origin).glob("*.json"))
    }
    return tuple(sorted(found))


def load(device: str) -> tuple[Book, dict[Place, Origin]]:
    """The book of a device out of all origins, and the origin of each entry."""
    books = [(origin, read(origin, device)) for origin in ORIGINS]
    origins: dict[Place, Origin] = {}
    for origin, book in books:
        for entry in book.entries:
            origins.setdefault(entry.place, origin)
    return merged(device, tuple(book for _, book in books)), origins


def named(device: str | None, here: str | None = None) -> str:
    """The device that a user means: a part of its name is enough.

    None means the device `here`, else the only one with a book. Raises UsageError.
    """
    known = devices()
    if device is None:
        if here is not None:
            return here
        if len(known) == 1:
            return known[0]
        if not known:
            raise UsageError("there is no book yet", fix=EMPTY)
        raise UsageError(f"there are books of {', '.join(known)}", fix="choose with --device")
    found = [one for one in known if device.lower() in one.lower()]
    exact = [one for one in found if one.lower() == device.lower()]
    if len(exact or found) != 1:
        there = ", ".join(known) or "no book at all"
        raise UsageError(f"no single book is of {device[:60]!r}", fix=f"there is {there}")
    return (exact or found)[0]


EMPTY = "`kmint book build` makes one on a GPU, and `kmint book import FILE` takes one"


def put(device: str, entries: tuple[Entry, ...], sources: dict[str, str]) -> None:
    """Add entries that were built here, in place of earlier ones. Raises StorageError."""
    _add("own", Book(device=device, entries=entries, sources=sources))


def foreign(path: Path) -> Book:
    """The book in a file of another user. Raises UsageError."""
    try:
        return read_book(path)
    except BadBook as error:
        fix = "give a whole file of `kmint book export`"
        raise UsageError(f"{path}: {error}", title="no book", fix=fix) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}",
            fix="give a file of `kmint book export`",
        ) from None


def take(book: Book) -> None:
    """Add a foreign book, in place of earlier imports.

    Raises UsageError for more than a book can hold, and StorageError.
    """
    _add("imported", book)


def write(book: Book, path: Path) -> None:
    """Write a book to a file of the user's. Raises StorageError."""
    _write(text_of(book), path)


def _write(text: str, path: Path) -> None:
    try:
        files.write_text(path, text)
    except OSError as error:
        raise storage_error(path, error) from error


def _add(origin: Origin, book: Book) -> None:
    place = paths.private_dir(folder(origin))
    with _locked(place):
        whole = merged(book.device, (book, read(origin, book.device)))
        written = text_of(replace(whole, device=book.device))
        try:
            parse_book(written)
        except BadBook as error:
            raise UsageError(
                f"the book of {book.device} would be too large to read: {error}",
                fix="move its file away, or take a smaller one; `kmint path` shows the folder of books",
            ) from None
        _write(written, place / file_name(book.device))


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Two commands that add entries take turns."""
    lock = place / ".lock"
    try:
        number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(lock, error) from error
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _read(path: Path) -> Book:
    try:
        return read_book(path)
    except BadBook as error:
        raise EnvironmentUnfit(
            f"{path}: {error}",
            title="damaged book",
            fix="move the file away; `kmint book import FILE` takes a copy, `kmint book build` a new one",
        ) from None
    except OSError as error:
        raise storage_error(path, error) from error
