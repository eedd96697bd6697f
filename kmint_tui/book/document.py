"""The document of a book, `kmint.book/1`: written in a stable order, and read without trust.

Every type, every digest and every length is checked. The words of a book prove nothing: a kernel
from it is untrusted text, which is judged again before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kmint_tui import __version__
from kmint_tui.book.records import Book, Entry, Place, digest
from kmint_tui.documents import BadDocument, finite, parse_json, read_bytes
from kmint_tui.escapes import visible_line
from kmint_tui.typed import Mistyped, made

SCHEMA = "kmint.book/1"
MOST_BYTES = 64 << 20
LONGEST_SOURCE, LONGEST_TEXT = 1 << 18, 400
MOST = 1_000_000_000
"""Upper bound of a ratio, and of microseconds."""
_OP = re.compile(r"[a-z][a-z0-9_]{0,79}")
_SHAPE = re.compile(r"[A-Za-z0-9_.x=,+\[\]-]{1,160}")
_DTYPE = re.compile(r"[a-z0-9_]{1,20}")


class BadBook(ValueError):
    """A document that is no book; the message is the reason in one line."""

    def __init__(self, reason: str) -> None:
        # Words of the document may hold a line's end.
        super().__init__(visible_line(reason))


@dataclass(frozen=True, kw_only=True)
class _Document:
    schema: str
    device: str
    entries: tuple[Entry, ...]
    sources: Mapping[str, str]


def to_json(book: Book) -> dict[str, Any]:
    """The content of `kmint.book/1`, without the schema's name."""
    used = sorted({entry.source_sha256 for entry in book.entries})
    return {
        "device": book.device,
        "entries": [asdict(entry) for entry in sorted(book.entries, key=lambda one: one.place)],
        "sources": {name: book.sources[name] for name in used},
    }


def text_of(book: Book) -> str:
    """The whole document as text."""
    body = {"schema": SCHEMA, "kmint_version": __version__, **to_json(book)}
    return json.dumps(finite(body), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_book(path: Path) -> Book:
    """The book in a file. Raises BadBook, or OSError where the file cannot be read."""
    return parse_book(_content(path))


def parse_book(text: str | bytes) -> Book:
    """The book in a text. Raises BadBook."""
    try:
        return from_json(parse_json(text, most_bytes=MOST_BYTES))
    except BadDocument as error:
        raise BadBook(str(error)) from None


def from_json(document: Any) -> Book:
    """The book in a document. Raises BadBook."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadBook(f"it is not of the schema {SCHEMA}")
    try:
        found = made(_Document, document, "the book")
    except Mistyped as error:
        raise BadBook(str(error)) from None
    _check_text("the device", found.device)
    if not found.device:
        raise BadBook("it names no device")
    for name, source in found.sources.items():
        if len(source) > LONGEST_SOURCE:
            raise BadBook(f"the kernel {name[:12]} is longer than {LONGEST_SOURCE >> 10} KiB")
        if digest(source) != name:
            raise BadBook(f"the kernel {name[:12]} is not the text of that digest")
    places: set[Place] = set()
    for entry in found.entries:
        _check(entry, found.sources)
        if entry.place in places:
            raise BadBook(f"it has two entries for {entry.place}")
        places.add(entry.place)
    return Book(device=found.device, entries=found.entries, sources=found.sources)


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, most_bytes=MOST_BYTES)
    except BadDocument as error:
        raise BadBook(str(error)) from None


def _check(entry: Entry, sources: Mapping[str, str]) -> None:
    """Raise BadBook for an entry that no kmint writes."""
    for name, value, form in (
        ("operation", entry.op, _OP),
        ("shape", entry.shape, _SHAPE),
        ("dtype", entry.dtype, _DTYPE),
    ):
        if not form.fullmatch(value):
            raise BadBook(f"{value[:40]!r} is no {name}")
    figures = entry.figures
    if entry.source_sha256 not in sources:
        raise BadBook(f"the kernel of {entry.place} is missing")
    maybe = (figures.low, figures.high, figures.floor_share)
    numbers = (figures.ratio, figures.us, *figures.baselines.values(), *maybe)
    if not all(number is None or 0 < number < MOST for number in numbers):
        raise BadBook(f"a time or a ratio of {entry.place} is not between 0 and {MOST:,}")
    makers = (entry.smith, entry.smith_sha256, entry.changes, entry.commit, entry.date)
    measured = (figures.verdict, figures.bar, *figures.baselines)
    versions = (*entry.versions, *entry.versions.values())
    for text in (*makers, *measured, *versions):
        _check_text(f"a text of {entry.place}", text)


def _check_text(where: str, text: str) -> None:
    if len(text) > LONGEST_TEXT or visible_line(text).strip() != text:
        raise BadBook(f"{where} is too long, begins or ends with a space, or steers the terminal")
