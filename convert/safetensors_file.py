"""One safetensors file, read lazily and strictly.

This module reads only the requested rows, so a 5 GB embedding can be converted in small pieces.
The public library's numpy reader has no bfloat16, so this module reads the short format itself.
A file holds 8 bytes of little-endian header length, a JSON header, then raw data. Source:
https://github.com/huggingface/safetensors#format

Limits: little-endian machines. Dense F64, F32, F16 and BF16 tensors are readable, other dtypes are
only listed.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from convert.errors import SourceError
from convert.json_text import parse_json

MAX_HEADER_BYTES = 100_000_000
_BLOCK, _LONGEST_TAIL = 4096, 1 << 22
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
_READABLE = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TensorEntry:
    """The place of one tensor: `start` and `stop` are byte positions in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def parse_header(
    header: bytes, data_start: int, file_bytes: int, where: str
) -> dict[str, TensorEntry]:
    """The entries of a JSON header. Raises SourceError when it does not fit the file's size."""
    try:
        document = parse_json(header)
    except ValueError as error:
        raise SourceError(
            f"{where}: the safetensors header is not JSON ({error})", "download the file again"
        ) from None
    if not isinstance(document, dict):
        raise SourceError(
            f"{where}: the safetensors header is not an object", "download the file again"
        )
    entries = {}
    for name, value in document.items():
        if name != "__metadata__":
            entries[name] = _entry(name, value, data_start, file_bytes, where)
    _refuse_overlaps(entries, where)
    return entries


def _entry(name: str, value: Any, data_start: int, file_bytes: int, where: str) -> TensorEntry:
    broken = SourceError(
        f"{where}: tensor {name[:80]!r} has a malformed entry", "download the file again"
    )
    if not isinstance(value, dict) or not isinstance(value.get("dtype"), str):
        raise broken
    shape, offsets, item = (
        value.get("shape"),
        value.get("data_offsets"),
        _ITEM_BYTES.get(value["dtype"]),
    )
    if item is None:
        raise SourceError(
            f"{where}: tensor {name[:80]!r} has unknown dtype {value['dtype'][:20]!r}"
        )
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(
            type(n) is int and 0 <= n < 2**62 for n in numbers
        ):
            raise broken
    assert isinstance(shape, list) and isinstance(offsets, list)
    size = item
    for extent in shape:
        size *= extent
        if size > file_bytes and 0 not in shape:
            raise SourceError(
                f"{where}: tensor {name[:80]!r} is larger than the file",
                "the file is truncated: download it again",
            )
    if len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise broken
    start, stop = data_start + offsets[0], data_start + offsets[1]
    if stop > file_bytes:
        raise SourceError(
            f"{where}: tensor {name[:80]!r} ends at byte {stop}, the file has {file_bytes}",
            "the file is truncated: download it again",
        )
    return TensorEntry(name, value["dtype"], tuple(shape), start, stop)


def _refuse_overlaps(entries: dict[str, TensorEntry], where: str) -> None:
    previous = None
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.stop)):
        if previous is not None and entry.start < previous.stop:
            raise SourceError(
                f"{where}: tensors {previous.name[:80]!r} and {entry.name[:80]!r} overlap",
                "download the file again",
            )
        previous = entry


def _as_slice(index: slice | npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Neighbouring rows as a slice, which reads them in place."""
    if (
        isinstance(index, slice)
        or not len(index)
        or index[-1] - index[0] != len(index) - 1
        or (np.diff(index) != 1).any()
    ):
        return index
    return slice(int(index[0]), int(index[-1]) + 1)


class SafetensorsFile:
    """A safetensors file whose rows are read as float32.

    Use it as a context manager or call `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                    raise SourceError(
                        f"{path.name}: not a safetensors file (header of {length} bytes in "
                        f"a file of {size})",
                        "download the file again",
                    )
                self.entries = parse_header(file.read(length), 8 + length, size, path.name)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise SourceError(
                f"{path}: {error.strerror}", "check the path and its permissions"
            ) from None

    def rows(self, name: str, index: slice | npt.NDArray[np.int64] | None = None) -> Floats:
        """Rows of a tensor (along its first axis) as float32; all of them without `index`.

        Scalars have no rows. The result without `index` may be a read-only view of the file; the
        caller then calls `release` at the end.
        """
        entry = self.entries[name]
        if entry.dtype not in _READABLE:
            raise SourceError(
                f"{self.path.name}: tensor {name!r} is {entry.dtype}; only floating point "
                "weights can be converted"
            )
        count = (entry.stop - entry.start) // _ITEM_BYTES[entry.dtype]
        raw = np.frombuffer(
            self._map, dtype=_READABLE[entry.dtype], count=count, offset=entry.start
        ).reshape(entry.shape)
        taken = raw if index is None else raw[_as_slice(index)]
        if entry.dtype == "BF16":
            floats: Floats = np.left_shift(taken, 16, dtype=np.uint32).view(np.float32)
        else:
            floats = taken.astype(np.float32, copy=index is not None)
        if index is not None:
            self.release(name)
        return floats

    @property
    def readable(self) -> frozenset[str]:
        """The tensors that `rows` can read: those of floating-point numbers."""
        return frozenset(name for name, entry in self.entries.items() if entry.dtype in _READABLE)

    def zero_tail(self) -> int:
        """Number of zero bytes at the end of the file, in whole blocks of 4 KiB.

        A long tail is not read to its start.
        """
        end = len(self._map)
        while end > max(_BLOCK, len(self._map) - _LONGEST_TAIL) and not any(
            self._map[end - _BLOCK : end]
        ):
            end -= _BLOCK
        return len(self._map) - end

    def release(self, name: str) -> None:
        """Drop a tensor's pages, so that a file larger than memory does not fill this process.

        Views stay valid.
        """
        entry = self.entries[name]
        if entry.stop > entry.start and hasattr(self._map, "madvise"):
            first = entry.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, entry.stop - first)

    def close(self) -> None:
        """Release the mapping."""
        with contextlib.suppress(
            BufferError
        ):  # A propagating error may still hold rows; the last of them unmaps the file.
            self._map.close()

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
