"""The tensors of a GGUF file; rows are dequantised to float32 without reading the whole file.

`gguf_header` reads the tensor table. Limits: kmint or llama.cpp wrote the file; a malformed file
raises VerifyError.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import gguf
import numpy as np
import numpy.typing as npt

from convert.errors import SourceError, VerifyError
from convert.gguf_header import GgufError, Header, read_header
from convert.safetensors_file import Floats


@dataclass(frozen=True)
class GgufTensor:
    """One tensor. `shape` is slowest axis first, `start` the byte position in the file.

    `row_bytes` is the size of one row.
    """

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    start: int
    row_bytes: int


class GgufFile:
    """An opened GGUF; `tensors` by name. Use it as a context manager.

    Raises SourceError for a file that cannot be read, VerifyError for a malformed one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.tensors = _tensors(read_header(path))
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except GgufError as error:
            raise VerifyError(
                f"{path.name} is not a sound GGUF file: {error}", "convert it again"
            ) from None
        except OSError as error:
            raise SourceError(
                f"{path} cannot be read: {error.strerror or error}",
                "check the path and its permissions",
            ) from None

    def rows(self, name: str, index: npt.NDArray[np.int64]) -> Floats:
        """The rows `index` of the first axis in float32; single elements for a tensor of one axis.

        Shape: (len(index), *tensor.shape[1:]).
        """
        tensor = self.tensors[name]
        one_axis = len(tensor.shape) == 1
        whole = (1, *tensor.shape) if one_axis else tensor.shape
        size = tensor.row_bytes * int(np.prod(whole[:-1], dtype=np.int64))
        raw = np.frombuffer(self._map, np.uint8, size, tensor.start).reshape(
            *whole[:-1], tensor.row_bytes
        )
        values: Floats = (
            _floats(raw, tensor.type)[0][index] if one_axis else _floats(raw[index], tensor.type)
        )
        # The pages are not needed again and must not count as this process's memory.
        if hasattr(self._map, "madvise"):
            first = tensor.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, tensor.start + size - first)
        return values

    def close(self) -> None:
        """Release the mapping."""
        # A propagating error may still hold rows; the last of them unmaps the file.
        with contextlib.suppress(BufferError):
            self._map.close()

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _tensors(header: Header) -> dict[str, GgufTensor]:
    tensors = {}
    for entry in header.tensors:
        shape, kind = tuple(reversed(entry.shape)), gguf.GGMLQuantizationType[entry.type]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        tensors[entry.name] = GgufTensor(
            entry.name,
            shape,
            kind,
            header.data_offset + entry.offset,
            shape[-1] // block * block_bytes,
        )
    return tensors


def _floats(raw: npt.NDArray[np.uint8], quantization: gguf.GGMLQuantizationType) -> Floats:
    """The values of whole rows in float32."""
    if quantization in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        stored = raw.view("<f4" if quantization == gguf.GGMLQuantizationType.F32 else "<f2")
        result: Floats = stored.astype(np.float32)
    else:
        result = gguf.quants.dequantize(raw, quantization)
    return result
