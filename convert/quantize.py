"""Quantises a finished F32, F16 or BF16 GGUF with llama.cpp, in a child process.

Rows whose length is not a multiple of 256 cannot take k-quants. llama.cpp then chooses another
type, which is read back from the written file and reported by tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf

from convert import files
from convert.errors import ConvertError, SpaceError
from convert.gguf_file import GgufFile
from convert.llama_child import call
from convert.processors import usable_processors

FILE_TYPES = {
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "Q4_K_S": gguf.LlamaFileType.MOSTLY_Q4_K_S,
    "Q4_K_M": gguf.LlamaFileType.MOSTLY_Q4_K_M,
    "Q5_0": gguf.LlamaFileType.MOSTLY_Q5_0,
    "Q5_K_S": gguf.LlamaFileType.MOSTLY_Q5_K_S,
    "Q5_K_M": gguf.LlamaFileType.MOSTLY_Q5_K_M,
    "Q6_K": gguf.LlamaFileType.MOSTLY_Q6_K,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


@dataclass(frozen=True)
class Quantised:
    """The written file, its size in bytes, and the number of tensors by type."""

    path: Path
    bytes: int
    types: dict[str, int]


def quantise(
    source: Path, target: Path, kind: str, *, threads: int = 0, importance: Path | None = None
) -> Quantised:
    """Write `source` as `kind` to `target`, whole or not at all.

    `importance` is a file of `importance.py`. Raises ConvertError, SpaceError.
    """
    if kind not in FILE_TYPES:
        raise ConvertError(
            f"unknown quantisation {kind!r}", f"choose one of {', '.join(FILE_TYPES)}"
        )
    types: dict[str, int] = {}
    try:
        with files.temporary_folder(target.parent) as folder:
            made = folder / target.name
            request = {
                "source": source,
                "target": made,
                "file_type": int(FILE_TYPES[kind]),
                "threads": threads or usable_processors(),
                "imatrix": importance,
            }
            call("quantize", request)
            with GgufFile(made) as written:
                for tensor in written.tensors.values():
                    types[tensor.type.name] = types.get(tensor.type.name, 0) + 1
            files.sync(made)
            files.move(made, target)
    except OSError as error:
        raise SpaceError(
            f"{target}: {error.strerror}", "check free space and permissions"
        ) from None
    return Quantised(target, target.stat().st_size, types)
