"""Executes a recipe: streams tensors from a checkpoint into their final place in a GGUF.

Header and tensor table come first (the `gguf` package writes them), then each tensor in pieces of at most
`CHUNK_BYTES` of float32. The file is written as NAME.partial, synced, and renamed, so that a file under its final name
is always complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from convert.errors import ConvertError, SpaceError
from convert.recipe import Recipe, TensorRule
from convert.safetensors_file import Floats

CHUNK_BYTES = 64 * 2**20
ALIGNMENT = 32
DIRECT_TYPES = {
    "F32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "F16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "BF16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "Q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}

ReadRows = Callable[[str, npt.NDArray[np.int64]], Floats]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Layout:
    """Where and how each tensor will be written. `types` pairs with the recipe's tensors; sizes are bytes."""

    types: tuple[gguf.GGMLQuantizationType, ...]
    sizes: tuple[int, ...]
    total: int
    fallbacks: tuple[str, ...]


def layout(recipe: Recipe, kind: str) -> Layout:
    """The tensor types and sizes of a file of type `kind`; tensors whose rows do not fit its blocks become F16."""
    wanted = DIRECT_TYPES[kind][0]
    types, sizes, fallbacks = [], [], []
    for rule in recipe.tensors:
        chosen = gguf.GGMLQuantizationType.F32 if rule.keep_f32 else wanted
        if rule.shape[-1] % gguf.GGML_QUANT_SIZES[chosen][0]:
            chosen = gguf.GGMLQuantizationType.F16
            fallbacks.append(f"{rule.name}: rows of {rule.shape[-1]} do not fit {kind} blocks, stored as F16")
        block, block_bytes = gguf.GGML_QUANT_SIZES[chosen]
        types.append(chosen)
        sizes.append(int(np.prod(rule.shape, dtype=np.int64)) // block * block_bytes)
    total = sum(_padded(size) for size in sizes)
    return Layout(tuple(types), tuple(sizes), total, tuple(fallbacks))


def write_gguf(
    path: Path,
    recipe: Recipe,
    vocabulary: Mapping[str, Any],
    general: Mapping[str, Any],
    kind: str,
    read: ReadRows,
    progress: Progress | None = None,
) -> Layout:
    """Write the whole file. `read(source, rows)` gives float32 rows of a source tensor. Raises SpaceError, ConvertError."""
    plan = layout(recipe, kind)
    partial = path.with_name(path.name + ".partial")
    try:
        free = shutil.disk_usage(path.parent).free
        if free < plan.total + 2**20:
            raise SpaceError(
                f"{path.parent} has {free / 1e9:.2f} GB free, {plan.total / 1e9:.2f} GB are needed",
                "free some space or choose another --out",
            )
        _write_header(partial, recipe, vocabulary, general, kind, plan)
        with partial.open("ab") as file:
            file.write(bytes(_padded(file.tell()) - file.tell()))
            done = 0
            for rule, quantization, size in zip(recipe.tensors, plan.types, plan.sizes, strict=True):
                start = file.tell()
                for piece in _pieces(rule, read):
                    file.write(_encode(rule, piece, quantization))
                    if progress is not None:
                        progress(done + file.tell() - start, plan.total)
                if file.tell() - start != size:
                    raise ConvertError(f"{rule.name}: wrote {file.tell() - start} bytes, planned {size}")
                file.write(bytes(_padded(size) - size))
                done += _padded(size)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check free space and permissions") from None
    finally:
        partial.unlink(missing_ok=True)
    return plan


def _write_header(
    partial: Path, recipe: Recipe, vocabulary: Mapping[str, Any], general: Mapping[str, Any], kind: str, plan: Layout
) -> None:
    writer = gguf.GGUFWriter(partial, recipe.architecture)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(DIRECT_TYPES[kind][1])
    for key, value in {**general, **recipe.metadata, **vocabulary}.items():
        _add(writer, key, value)
    for rule, quantization, size in zip(recipe.tensors, plan.types, plan.sizes, strict=True):
        writer.add_tensor_info(rule.name, rule.shape, np.dtype(np.float32), size, raw_dtype=quantization)
    try:
        writer.write_header_to_file(partial)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.flush()
    finally:
        writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _pieces(rule: TensorRule, read: ReadRows) -> Iterator[Floats]:
    """The output rows of a tensor in order, at most CHUNK_BYTES at a time."""
    if rule.values is not None:
        yield rule.values
        return
    assert rule.source is not None
    count = rule.shape[0]
    row_bytes = 4 * int(np.prod(rule.shape[1:], dtype=np.int64))
    step = max(1, CHUNK_BYTES // row_bytes)
    for first in range(0, count, step):
        wanted = np.arange(first, min(first + step, count))
        piece = read(rule.source, wanted if rule.rows is None else rule.rows[wanted])
        piece = piece.reshape(len(wanted), *rule.shape[1:])
        if rule.columns is not None:
            piece = piece[:, rule.columns]
        yield rule.apply(piece) if rule.apply is not None else piece


def _encode(rule: TensorRule, piece: Floats, quantization: gguf.GGMLQuantizationType) -> bytes:
    if quantization == gguf.GGMLQuantizationType.F16 and np.abs(piece).max(initial=0.0) > np.finfo(np.float16).max:
        raise ConvertError(f"{rule.name} holds values that F16 cannot", "use --quant BF16, F32 or Q8_0")
    if quantization == gguf.GGMLQuantizationType.F32:
        return piece.astype("<f4", copy=False).tobytes()
    encoded: bytes = gguf.quants.quantize(np.ascontiguousarray(piece), quantization).tobytes()
    return encoded


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
