"""A strict, bounded reader of the head of a GGUF file: metadata and tensor table, no tensor data.

Format: the GGUF specification of the ggml project, little-endian, versions 2 and 3. The file is untrusted: every count is
checked against what the rest of the file could hold before anything is allocated, and only scalars are kept of the
metadata (arrays are counted and skipped). Raises GgufError, never anything else, for a file that is not sound.
"""

from __future__ import annotations

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
DEFAULT_ALIGNMENT = 32

# Elements a block and bytes a block of each tensor type that llama.cpp 0.3.36 of the Python bindings reads.
BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

Scalar = int | float | bool | str


class GgufError(ValueError):
    """The file is not a sound GGUF file; the message says where it stops making sense."""


@dataclass(frozen=True)
class Array:
    """An array of the metadata, of which only the length is kept."""

    count: int


@dataclass(frozen=True)
class Tensor:
    """One row of the tensor table. `shape` is innermost first, as in the file; `offset` counts from the data section."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """The head of a GGUF file. `data_offset` is where tensor data starts, `file_bytes` how long the file is."""

    version: int
    metadata: Mapping[str, Scalar | Array]
    tensors: tuple[Tensor, ...]
    data_offset: int
    file_bytes: int

    def text(self, key: str) -> str | None:
        """A string of the metadata, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """An integer of the metadata, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, key: str) -> int | None:
        """The length of an array of the metadata, or None."""
        value = self.metadata.get(key)
        return value.count if isinstance(value, Array) else None


class _Cursor:
    """Reads forward through a buffer and refuses to leave it."""

    def __init__(self, buffer: mmap.mmap | bytes, size: int) -> None:
        self._buffer = buffer
        self._size = size
        self.at = 0

    @property
    def left(self) -> int:
        return self._size - self.at

    def skip(self, count: int) -> None:
        if count > self.left:
            raise GgufError(f"truncated: {count} bytes wanted at {self.at}, {self.left} left")
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
            raise GgufError(f"a string of {length} bytes at {self.at}; at most {limit} are accepted there")
        start = self.at
        self.skip(length)
        return bytes(self._buffer[start : self.at])

    def text(self, limit: int) -> str:
        start = self.at
        try:
            return self.raw(limit).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError(f"the text at {start} is not UTF-8") from None


def read_header(path: Path) -> Header:
    """The head of the file at `path`. Raises GgufError, or OSError when it cannot be read at all."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < 24:
            raise GgufError(f"only {size} bytes long")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _parse(_Cursor(view, size), bytes(view[:4]), size)


def parse_header(content: bytes, file_bytes: int | None = None) -> Header:
    """The head of a file given as bytes; of its first bytes only when `file_bytes` says how long all of it is. Raises GgufError."""
    return _parse(_Cursor(content, len(content)), content[:4], len(content) if file_bytes is None else file_bytes)


def _parse(cursor: _Cursor, magic: bytes, size: int) -> Header:
    if magic != MAGIC:
        raise GgufError(f"does not start with {MAGIC!r} but with {magic!r}")
    cursor.skip(4)
    version = cursor.integer("<I")
    if version not in VERSIONS:
        raise GgufError(f"format version {version}; versions {VERSIONS[0]} and {VERSIONS[-1]} are known")
    tensor_count, pair_count = cursor.integer("<Q"), cursor.integer("<Q")
    if tensor_count > MAX_TENSORS or pair_count > MAX_PAIRS:
        raise GgufError(f"{tensor_count} tensors and {pair_count} metadata entries; at most {MAX_TENSORS} and {MAX_PAIRS} are accepted")
    metadata: dict[str, Scalar | Array] = {}
    for _ in range(pair_count):
        key = cursor.text(MAX_NAME)
        if not key or key in metadata:
            raise GgufError(f"metadata key {key!r} is empty or given twice")
        metadata[key] = _value(cursor, key)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment > 1 << 20 or alignment & (alignment - 1):
        raise GgufError(f"general.alignment is {alignment!r}, not a power of two")
    tensors = _tensors(cursor, tensor_count, alignment)
    data_offset = -(-cursor.at // alignment) * alignment
    for tensor in tensors:
        if data_offset + tensor.offset + tensor.nbytes > size:
            raise GgufError(
                f"truncated: tensor {tensor.name!r} ends {data_offset + tensor.offset + tensor.nbytes - size} bytes after the file"
            )
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
            raise GgufError(f"metadata {key!r} is a truth value of {value}")
        return bool(value)
    return value


def _array(cursor: _Cursor, key: str) -> Array:
    kind, count = cursor.integer("<I"), cursor.integer("<Q")
    if count > MAX_ARRAY:
        raise GgufError(f"metadata {key!r} is an array of {count} entries; at most {MAX_ARRAY} are accepted")
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
    tensors: dict[str, Tensor] = {}
    expected = 0
    for _ in range(count):
        name = cursor.text(MAX_NAME)
        dimensions = cursor.integer("<I")
        if not name or name in tensors or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise GgufError(f"tensor {name!r}: no name, the name of another, or {dimensions} dimensions")
        shape = tuple(cursor.integer("<Q") for _ in range(dimensions))
        kind, offset = cursor.integer("<I"), cursor.integer("<Q")
        if kind not in BLOCKS:
            raise GgufError(f"tensor {name!r} is of unknown type {kind}")
        type_name, block, block_bytes = BLOCKS[kind]
        elements = 1
        for extent in shape:
            elements *= extent
        if not 0 < elements < 1 << 48 or shape[0] % block:
            raise GgufError(f"tensor {name!r} of type {type_name} cannot have the shape {shape}")
        if offset != expected:
            raise GgufError(f"tensor {name!r} starts at {offset}; the one before it ends at {expected}")
        tensors[name] = Tensor(name, shape, type_name, offset, elements // block * block_bytes)
        expected = -(-(offset + tensors[name].nbytes) // alignment) * alignment
    return tuple(tensors.values())
