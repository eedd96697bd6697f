"""The making of each GGUF tensor from a checkpoint, as data that can be streamed row by row.

An architecture module (`llama.py`, `qwen35.py`) returns a Recipe; `write.py` executes it in row
chunks. Every transform for llama.cpp is a permutation of rows or columns, a reshape, or an
elementwise function, so no tensor is ever held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from convert.safetensors_file import Floats

Index = npt.NDArray[np.int64]
MetadataValue = Any


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """One output tensor.

    `shape` is the output's shape, slowest axis first. Output row i is row `rows[i]` of `source`
    (flattened to 2-D), with its columns in the order `columns`, then `apply`d elementwise.
    `keep_f32` marks tensors that are never quantised. `values` replaces the source for tensors that
    come from the config alone.
    """

    name: str
    shape: tuple[int, ...]
    source: str | None = None
    rows: Index | None = None
    columns: Index | None = None
    apply: Callable[[Floats], Floats] | None = None
    keep_f32: bool = False
    values: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A GGUF without its vocabulary; `metadata` maps keys to Python scalars, strings or lists.

    `dropped` maps source tensors that are left out on purpose to the reason.
    """

    architecture: str
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorRule, ...]
    vocab_size: int
    context_length: int
    dropped: Mapping[str, str] = field(default_factory=dict)
