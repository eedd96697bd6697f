"""The rows on the pages of an SQLite file, read one page at a time with no regard for the trees they belong to.

For a damaged file, where SQLite gives up a whole tree when a page in the middle of it is lost. Format: sqlite.org/fileformat2.html.
A page that makes no sense yields nothing; a row that makes no sense is left out. Nothing is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

Value = int | float | str | bytes | None

_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE = 0x02, 0x0A, 0x0D
_HEADER = {_INTERIOR_INDEX: 12, _LEAF_INDEX: 8, _LEAF_TABLE: 8}
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


@dataclass(frozen=True)
class Row:
    """The columns of a row as they are stored; `key` is the row's number in a table that has one, where column 0 then is None."""

    key: int | None
    values: tuple[Value, ...]


def rows(content: bytes) -> Iterator[Row]:
    """Every row that can be read off the content of a database file in UTF-8. Pages that are free are passed over."""
    if len(content) < 512 or not content.startswith(b"SQLite format 3\0"):
        return
    size = int.from_bytes(content[16:18], "big")
    pages = _Pages(content, 65536 if size == 1 else size)
    free = pages.free()
    for number in range(2, pages.count + 1):
        if number not in free:
            yield from pages.rows(number)


class _Pages:
    def __init__(self, content: bytes, size: int) -> None:
        self._content = content
        self._size = max(512, size)
        self._usable = self._size - content[20]
        self.count = len(content) // self._size

    def free(self) -> set[int]:
        """The pages that hold nothing any more, as far as their list can be followed."""
        found: set[int] = set()
        trunk = int.from_bytes(self._content[32:36], "big")
        while 2 <= trunk <= self.count and trunk not in found:
            page = self._page(trunk)
            found.add(trunk)
            trunk, length = struct.unpack(">II", page[:8])
            listed = page[8 : 8 + 4 * min(length, self._size // 4 - 2)]
            found.update(int.from_bytes(listed[at : at + 4], "big") for at in range(0, len(listed), 4))
        return found

    def rows(self, number: int) -> Iterator[Row]:
        page = self._page(number)
        kind = page[0]
        if kind not in _HEADER:
            return
        start = _HEADER[kind]
        for at in range(start, start + 2 * int.from_bytes(page[3:5], "big"), 2):
            try:
                yield self._row(kind, page, int.from_bytes(page[at : at + 2], "big"))
            except (ValueError, IndexError, struct.error):
                continue

    def _page(self, number: int) -> bytes:
        return self._content[(number - 1) * self._size : number * self._size]

    def _row(self, kind: int, page: bytes, at: int) -> Row:
        at += 4 if kind == _INTERIOR_INDEX else 0
        length, at = _varint(page, at)
        key = None
        if kind == _LEAF_TABLE:
            key, at = _varint(page, at)
        least = (self._usable - 12) * 32 // 255 - 23
        most = self._usable - 35 if kind == _LEAF_TABLE else (self._usable - 12) * 64 // 255 - 23
        if length <= most:
            return Row(key, _columns(page[at : at + length], length))
        local = least + (length - least) % (self._usable - 4)
        local = local if local <= most else least
        payload = bytearray(page[at : at + local])
        beyond = int.from_bytes(page[at + local : at + local + 4], "big")
        while beyond and len(payload) < length:
            if not 2 <= beyond <= self.count:
                raise ValueError("a chain of pages leads out of the file")
            page = self._page(beyond)
            payload += page[4 : self._usable]
            beyond = int.from_bytes(page[:4], "big")
        return Row(key, _columns(bytes(payload[:length]), length))


def _columns(payload: bytes, length: int) -> tuple[Value, ...]:
    if len(payload) < length:
        raise ValueError("a row is cut short")
    end, at = _varint(payload, 0)
    types = []
    while at < end:
        kind, at = _varint(payload, at)
        types.append(kind)
    values = []
    for kind in types:
        value, at = _value(payload, at, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    size = _INTEGER_BYTES.get(kind) or (8 if kind == 7 else (kind - 12) // 2)
    if kind in (10, 11) or at + size > len(payload):
        raise ValueError("a value is cut short")
    raw = payload[at : at + size]
    if kind in _INTEGER_BYTES:
        return int.from_bytes(raw, "big", signed=True), at + size
    if kind == 7:
        return float(struct.unpack(">d", raw)[0]), at + size
    return (raw.decode("utf-8") if kind % 2 else raw), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9
