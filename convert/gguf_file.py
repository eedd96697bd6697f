"""The tensor table of a GGUF file, and rows of its tensors as float32 without reading the whole.

The `gguf` package's reader keeps a numpy view for every string of the vocabulary, a gigabyte for 130,000 tokens; this one
steps over the metadata. Format: the GGUF specification of the ggml project, little-endian, version 3.

Limits: the file is one that kmint or llama.cpp wrote; anything malformed is a VerifyError, never a guess.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import gguf
import numpy as np
import numpy.typing as npt

from convert.errors import SourceError, VerifyError
from convert.safetensors_file import Floats

MAX_COUNT = 2**24
MAX_DIMENSIONS = 4
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: `shape` slowest axis first; `start` is its byte position in the file, `row_bytes` the size of one row."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    start: int
    row_bytes: int


class GgufFile:
    """An opened GGUF; `tensors` by name. Use as a context manager. Raises SourceError or VerifyError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SourceError(f"{path}: cannot be read ({error})", "check the path and its permissions") from None
        try:
            self.tensors = {tensor.name: tensor for tensor in self._read()}
        except (struct.error, ValueError, KeyError, IndexError) as error:
            self.close()
            raise VerifyError(f"{path.name}: not a sound GGUF file ({error})", "convert it again") from None

    def _read(self) -> Iterator[GgufTensor]:
        magic, version, count, pairs = struct.unpack_from("<4sIQQ", self._map, 0)
        if magic != b"GGUF" or version != 3 or max(count, pairs) > MAX_COUNT:
            raise ValueError("no GGUF header of version 3")
        at, alignment = 24, gguf.GGUF_DEFAULT_ALIGNMENT
        for _ in range(pairs):
            key, at = self._string(at)
            (kind,) = struct.unpack_from("<I", self._map, at)
            if key == "general.alignment":
                (alignment,) = struct.unpack_from("<I", self._map, at + 4)
            at = self._after(kind, at + 4)
        entries = []
        for _ in range(count):
            name, at = self._string(at)
            (axes,) = struct.unpack_from("<I", self._map, at)
            if not 1 <= axes <= MAX_DIMENSIONS:
                raise ValueError(f"{name[:80]!r} has {axes} axes")
            *extents, kind, offset = struct.unpack_from(f"<{axes}QIQ", self._map, at + 4)
            at += 4 + 8 * axes + 12
            entries.append((name, tuple(reversed(extents)), gguf.GGMLQuantizationType(kind), offset))
        if alignment < 1:
            raise ValueError("alignment 0")
        data = -(-at // alignment) * alignment
        for name, shape, quantization, offset in entries:
            block, block_bytes = gguf.GGML_QUANT_SIZES[quantization]
            row_bytes = shape[-1] // block * block_bytes
            size = row_bytes
            for extent in shape[:-1]:
                size *= extent
            if shape[-1] % block or data + offset + size > len(self._map):
                raise ValueError(f"{name[:80]!r} does not fit the file")
            yield GgufTensor(name, shape, quantization, data + offset, row_bytes)

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = struct.unpack_from("<Q", self._map, at)
        if at + 8 + length > len(self._map):
            raise ValueError("a string runs past the end")
        return self._map[at + 8 : at + 8 + length].decode("utf-8"), at + 8 + length

    def _after(self, kind: int, at: int) -> int:
        """The position behind a metadata value of type `kind` at `at`."""
        if kind == _STRING:
            (length,) = struct.unpack_from("<Q", self._map, at)
            return int(at + 8 + length)
        if kind != _ARRAY:
            return at + _SCALAR_BYTES[kind]
        item, count = struct.unpack_from("<IQ", self._map, at)
        at += 12
        if item != _STRING:
            return int(at + _SCALAR_BYTES[item] * count)
        if count > MAX_COUNT:
            raise ValueError(f"an array of {count} strings")
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length_at(self._map, at)[0]
        return at

    def rows(self, name: str, index: npt.NDArray[np.int64]) -> Floats:
        """Rows along the first axis, dequantised to float32; elements for a tensor of one axis."""
        tensor = self.tensors[name]
        one_axis = len(tensor.shape) == 1
        whole = (1, *tensor.shape) if one_axis else tensor.shape
        size = tensor.row_bytes * int(np.prod(whole[:-1], dtype=np.int64))
        raw = np.frombuffer(self._map, np.uint8, size, tensor.start).reshape(*whole[:-1], tensor.row_bytes)
        values: Floats = _floats(raw, tensor.type)[0][index] if one_axis else _floats(raw[index], tensor.type)
        if hasattr(self._map, "madvise"):  # the pages are not needed again, and must not count as this process's memory
            first = tensor.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, tensor.start + size - first)
        return values

    def close(self) -> None:
        """Release the mapping."""
        with contextlib.suppress(BufferError):  # an error on its way out may still hold rows; the last of them unmaps the file
            self._map.close()

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _floats(raw: npt.NDArray[np.uint8], quantization: gguf.GGMLQuantizationType) -> Floats:
    """Bytes of whole rows as float32."""
    if quantization in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        stored = raw.view("<f4" if quantization == gguf.GGMLQuantizationType.F32 else "<f2")
        result: Floats = stored.astype(np.float32)
    else:
        result = gguf.quants.dequantize(raw, quantization)
    return result
