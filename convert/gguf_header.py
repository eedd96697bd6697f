"""A strict, bounded reader of the head of a GGUF file: metadata and tensor table, no tensor data.

Format: the GGUF specification of the ggml project, little-endian, versions 2 and 3.

The file is untrusted. Every count is compared with the bytes that are left before anything is
allocated. Scalars and strings of the metadata are kept; arrays are counted and skipped. The `gguf`
package's own reader keeps a numpy view of every token instead, which takes a gigabyte for 130,000
tokens. A file that breaks the format raises GgufError, never another exception.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_PAIRS = 4096
MAX_TENSORS = 65536
MAX_NAME = 1024
MAX_STRING = 1 << 24
MAX_ARRAY = 1 << 23
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<B",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9

Scalar = int | float | bool | str


class GgufError(ValueError):
    """The file breaks the GGUF format; the message names the first broken place."""


@dataclass(frozen=True)
class Array:
    """The length of a metadata array; its entries are not kept."""

    count: int


@dataclass(frozen=True)
class Tensor:
    """One row of the tensor table.

    `shape` is innermost first, as in the file. `type` is a name such as "Q8_0". `offset` counts
    bytes from `Header.data_offset`.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """The head of a GGUF file.

    `data_offset` is the byte position of the first tensor; `file_bytes` is the size of the file.
    """

    version: int
    metadata: Mapping[str, Scalar | Array]
    tensors: tuple[Tensor, ...]
    data_offset: int
    file_bytes: int

    def text(self, key: str) -> str | None:
        """The string at `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """The integer at `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, key: str) -> int | None:
        """The length of the array at `key`, or None."""
        value = self.metadata.get(key)
        return value.count if isinstance(value, Array) else None


class _Cursor:
    """Reads forward through a buffer. Raises GgufError before it passes the end."""

    def __init__(self, buffer: mmap.mmap | bytes, size: int) -> None:
        self._buffer = buffer
        self._size = size
        self.at = 0

    @property
    def left(self) -> int:
        return self._size - self.at

    def skip(self, count: int) -> None:
        if count > self.left:
            raise GgufError(f"truncated: {count} bytes needed at {self.at}, {self.left} left")
        self.at += count

    def scalar(self, form: str) -> int | float:
        start = self.at
        self.skip(struct.calcsize(form))
        value: int | float = struct.unpack_from(form, self._buffer, start)[0]
        return value

    def integer(self, form: str) -> int:
        return int(self.scalar(form))

    def raw(self, limit: int) -> bytes:
        length = self.integer("<Q")
        if length > limit:
            raise GgufError(
                f"a string of {length} bytes at {self.at}; at most {limit} are accepted there"
            )
        start = self.at
        self.skip(length)
        return bytes(self._buffer[start : self.at])

    def text(self, limit: int) -> str:
        start = self.at
        try:
            return self.raw(limit).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError(f"the text at {start} is not UTF-8") from None


@functools.cache
def block_sizes() -> Mapping[int, tuple[str, int, int]]:
    """(name, elements a block, bytes a block) of each tensor type, from `gguf.GGML_QUANT_SIZES`."""
    # The table's module alone: the package around it loads numpy, and quick commands read headers.
    package = importlib.util.find_spec("gguf")
    assert package is not None and package.origin is not None
    table = importlib.util.spec_from_file_location(
        "_gguf_constants", Path(package.origin).with_name("constants.py")
    )
    assert table is not None and table.loader is not None
    constants = importlib.util.module_from_spec(table)
    table.loader.exec_module(constants)
    return {
        int(kind): (kind.name, block, nbytes)
        for kind, (block, nbytes) in constants.GGML_QUANT_SIZES.items()
    }


def read_header(path: Path) -> Header:
    """The head of the file at `path`. Raises GgufError; OSError when the file cannot be read."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < 24:
            raise GgufError(f"only {size} bytes long")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _parse(_Cursor(view, size), bytes(view[:4]), size)


def parse_header(content: bytes, file_bytes: int | None = None) -> Header:
    """The head in `content`, the first bytes of a file of `file_bytes` bytes (default: all of it).

    Raises GgufError.
    """
    return _parse(
        _Cursor(content, len(content)),
        content[:4],
        len(content) if file_bytes is None else file_bytes,
    )


def _parse(cursor: _Cursor, magic: bytes, size: int) -> Header:
    if magic != MAGIC:
        raise GgufError(f"does not start with {MAGIC!r} but with {magic!r}")
    cursor.skip(4)
    version = cursor.integer("<I")
    if version not in VERSIONS:
        raise GgufError(
            f"format version {version}; versions {VERSIONS[0]} and {VERSIONS[-1]} are known"
        )
    tensor_count, pair_count = cursor.integer("<Q"), cursor.integer("<Q")
    if tensor_count > MAX_TENSORS or pair_count > MAX_PAIRS:
        raise GgufError(
            f"{tensor_count} tensors and {pair_count} metadata entries; "
            f"at most {MAX_TENSORS} and {MAX_PAIRS} are accepted"
        )
    metadata: dict[str, Scalar | Array] = {}
    for _ in range(pair_count):
        key = cursor.text(MAX_NAME)
        if not key or key in metadata:
            raise GgufError(f"metadata key {key!r} is empty or given twice")
        metadata[key] = _value(cursor, key)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or alignment <= 0
        or alignment > MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise GgufError(f"general.alignment is {alignment!r}, not a power of two")
    tensors = _tensors(cursor, tensor_count, alignment)
    data_offset = -(-cursor.at // alignment) * alignment
    for tensor in tensors:
        excess = data_offset + tensor.offset + tensor.nbytes - size
        if excess > 0:
            raise GgufError(f"truncated: tensor {tensor.name!r} ends {excess} bytes after the file")
    return Header(version, metadata, tensors, data_offset, size)


def _value(cursor: _Cursor, key: str) -> Scalar | Array:
    kind = cursor.integer("<I")
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind == _STRING:
        return cursor.text(MAX_STRING)
    if kind not in _SCALARS:
        raise GgufError(f"metadata {key!r} is of unknown type {kind}")
    value = cursor.scalar(_SCALARS[kind])
    if kind == _BOOL:
        if value not in (0, 1):
            raise GgufError(f"metadata {key!r} is a boolean of value {value}")
        return bool(value)
    return value


def _array(cursor: _Cursor, key: str) -> Array:
    kind, count = cursor.integer("<I"), cursor.integer("<Q")
    if count > MAX_ARRAY:
        raise GgufError(
            f"metadata {key!r} is an array of {count} entries; at most {MAX_ARRAY} are accepted"
        )
    if kind == _STRING:
        for _ in range(count):
            length = cursor.integer("<Q")
            cursor.skip(length)
    elif kind in _SCALARS:
        cursor.skip(count * struct.calcsize(_SCALARS[kind]))
    else:
        raise GgufError(f"metadata {key!r} is an array of unknown type {kind}")
    return Array(count)


def _tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[Tensor, ...]:
    known = block_sizes()
    tensors: dict[str, Tensor] = {}
    expected = 0
    for _ in range(count):
        name = cursor.text(MAX_NAME)
        dimensions = cursor.integer("<I")
        if not name or name in tensors or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise GgufError(
                f"tensor {name!r}: its name is empty or not unique, or it has {dimensions} "
                "dimensions"
            )
        shape = tuple(cursor.integer("<Q") for _ in range(dimensions))
        kind, offset = cursor.integer("<I"), cursor.integer("<Q")
        if kind not in known:
            raise GgufError(f"tensor {name!r} is of unknown type {kind}")
        type_name, block, block_bytes = known[kind]
        elements = 1
        for extent in shape:
            elements *= extent
        if not 0 < elements < 1 << 48 or shape[0] % block:
            raise GgufError(f"tensor {name!r} of type {type_name} cannot have the shape {shape}")
        if offset != expected:
            raise GgufError(
                f"tensor {name!r} starts at {offset}; the previous tensor ends at {expected}"
            )
        tensors[name] = Tensor(name, shape, type_name, offset, elements // block * block_bytes)
        expected = -(-(offset + tensors[name].nbytes) // alignment) * alignment
    return tuple(tensors.values())
