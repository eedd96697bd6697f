"""Executes a recipe: streams tensors from a checkpoint into their final place in a GGUF.

The `gguf` package writes header and tensor table first. Each tensor follows in pieces of at most
`CHUNK_BYTES` of float32; several are made at once and written in order. The file is written in a
temporary folder, synced, and moved, so that a file under its final name is always complete.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from convert import files
from convert.damage import sound_range
from convert.errors import ConvertError, SpaceError
from convert.processors import usable_processors
from convert.recipe import Recipe, TensorRule
from convert.safetensors_file import Floats

CHUNK_BYTES = 8 * 2**20
"""Bytes of float32 in one piece of a tensor."""

MAX_THREADS = 8
"""Largest number of pieces made at once."""

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
    """The type and place of each tensor.

    `types` pairs with the recipe's tensors; sizes are bytes.
    """

    types: tuple[gguf.GGMLQuantizationType, ...]
    sizes: tuple[int, ...]
    total: int
    fallbacks: tuple[str, ...]


def layout(recipe: Recipe, kind: str) -> Layout:
    """The tensor types and sizes of a file of type `kind`.

    Tensors whose rows do not fit its blocks become F16.
    """
    wanted = DIRECT_TYPES[kind][0]
    types, sizes, fallbacks = [], [], []
    for rule in recipe.tensors:
        chosen = gguf.GGMLQuantizationType.F32 if rule.keep_f32 else wanted
        if rule.shape[-1] % gguf.GGML_QUANT_SIZES[chosen][0]:
            chosen = gguf.GGMLQuantizationType.F16
            fallbacks.append(
                f"{rule.name}: rows of {rule.shape[-1]} do not fit {kind} blocks, stored as F16"
            )
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
    """Write the whole file. `read(source, rows)` gives float32 rows of a source tensor.

    Raises SpaceError, ConvertError.
    """
    plan = layout(recipe, kind)
    try:
        free = shutil.disk_usage(path.parent).free
        if free < plan.total + 2**20:
            raise SpaceError(
                f"{path.parent} has {free / 1e9:.2f} GB free, {plan.total / 1e9:.2f} GB are needed",
                "free some space or choose another --out",
            )
        with files.temporary_folder(path.parent) as folder:
            made = folder / path.name
            _write_header(made, recipe, vocabulary, general, kind, plan)
            with made.open("ab") as file, ThreadPoolExecutor(worker_threads()) as pool:
                file.write(bytes(_padded(file.tell()) - file.tell()))
                start = file.tell()
                for piece in _encoded(pool, recipe, plan, read):
                    file.write(piece)
                    if progress is not None:
                        progress(file.tell() - start, plan.total)
                if file.tell() - start != plan.total:
                    raise ConvertError(
                        f"{path.name}: wrote {file.tell() - start} bytes of tensors, "
                        f"planned {plan.total}"
                    )
            files.sync(made)
            files.move(made, path)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check free space and permissions") from None
    return plan


def write_vocabulary(path: Path, recipe: Recipe, vocabulary: Mapping[str, Any]) -> None:
    """Write a GGUF without tensors, whose vocabulary llama.cpp can load. Raises SpaceError."""
    try:
        empty = Recipe(
            architecture=recipe.architecture,
            metadata=recipe.metadata,
            tensors=(),
            vocab_size=recipe.vocab_size,
            context_length=recipe.context_length,
        )
        _write_header(path, empty, vocabulary, {}, "F32", layout(empty, "F32"))
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check free space and permissions") from None


def _write_header(
    path: Path,
    recipe: Recipe,
    vocabulary: Mapping[str, Any],
    general: Mapping[str, Any],
    kind: str,
    plan: Layout,
) -> None:
    writer = gguf.GGUFWriter(path, recipe.architecture)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(DIRECT_TYPES[kind][1])
    for key, value in {**general, **recipe.metadata, **vocabulary}.items():
        _add(writer, key, value)
    for rule, quantization, size in zip(recipe.tensors, plan.types, plan.sizes, strict=True):
        writer.add_tensor_info(
            rule.name, rule.shape, np.dtype(np.float32), size, raw_dtype=quantization
        )
    try:
        writer.write_header_to_file(path)
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


def worker_threads() -> int:
    """Number of pieces made at once: at most one a usable processor."""
    return min(MAX_THREADS, usable_processors())


def peak_bytes() -> int:
    """Bytes that writing needs: rows, delta, stored form and intermediates of each piece."""
    return 6 * CHUNK_BYTES * worker_threads()


def _encoded(
    pool: ThreadPoolExecutor, recipe: Recipe, plan: Layout, read: ReadRows
) -> Iterator[memoryview]:
    """Every byte of the tensor data in order; the next pieces are made while one is written."""
    ahead: deque[Future[memoryview]] = deque()
    for rule, quantization, size in zip(recipe.tensors, plan.types, plan.sizes, strict=True):
        rows = np.arange(rule.shape[0])
        step = max(1, CHUNK_BYTES // (4 * int(np.prod(rule.shape[1:], dtype=np.int64))))
        for first in range(0, len(rows), step):
            padding = _padded(size) - size if first + step >= len(rows) else 0
            ahead.append(
                pool.submit(_piece, rule, rows[first : first + step], quantization, padding, read)
            )
            if len(ahead) > worker_threads():
                yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _piece(
    rule: TensorRule,
    wanted: npt.NDArray[np.int64],
    quantization: gguf.GGMLQuantizationType,
    padding: int,
    read: ReadRows,
) -> memoryview:
    """Some rows of a tensor in their stored form, with the padding before the next tensor."""
    encoded = _encode(rule, made_rows(rule, wanted, read), quantization)
    return (
        memoryview(encoded.tobytes() + bytes(padding))
        if padding
        else encoded.reshape(-1).view(np.uint8).data
    )


def made_rows(rule: TensorRule, wanted: npt.NDArray[np.int64], read: ReadRows) -> Floats:
    """The rows `wanted` of an output tensor, in float32."""
    if rule.values is not None:
        return rule.values[wanted]
    assert rule.source is not None
    piece = read(rule.source, wanted if rule.rows is None else rule.rows[wanted]).reshape(
        len(wanted), *rule.shape[1:]
    )
    if rule.columns is not None:
        piece = piece[:, rule.columns]
    return rule.apply(piece) if rule.apply is not None else piece


def _encode(
    rule: TensorRule, piece: Floats, quantization: gguf.GGMLQuantizationType
) -> npt.NDArray[Any]:
    """A piece in its stored type, contiguous. Raises ConvertError for values outside its range."""
    low, high = sound_range(rule.name, piece)
    if quantization == gguf.GGMLQuantizationType.F32:
        return np.ascontiguousarray(piece, dtype="<f4")
    if quantization == gguf.GGMLQuantizationType.F16:
        limit = float(np.finfo(np.float16).max)
        if not (high <= limit and low >= -limit):
            raise ConvertError(
                f"{rule.name} holds values that F16 cannot", "use --quant BF16, F32 or Q8_0"
            )
        return piece.astype("<f2", order="C")
    encoded: npt.NDArray[Any] = gguf.quants.quantize(np.ascontiguousarray(piece), quantization)
    return np.ascontiguousarray(encoded)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
