"""What an operation and a test cell are, as plain data.

Nothing here imports torch: the catalogue must be listable in milliseconds and from processes that never load it.
Dtypes are torch's names without the prefix ("float16"); shapes and strides count elements. Catalogue ops use the first five
dtypes; the others occur in references a user brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Dtype = Literal["float32", "float16", "bfloat16", "int8", "int64", "int16", "int32", "uint8", "bool"]
Role = Literal["required", "bench", "capability"]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a cell. `offset` is the storage offset in elements; contiguous tensors have offset 0."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Op:
    """One fused operation with a trusted reference.

    `kind` names the signature (see `signatures.KINDS`); `norm`, `residual` and `acts` are set for ops made by the
    chain grammar and let prompts and the composer describe them. `regime` tells where the op is timed: a `_short` op is
    its base op on many short rows, a `_wide` one on few very long rows. `arguments` is set for user ops only; ask
    `signatures.signature` for every op's argument names.
    """

    name: str
    kind: str
    family: str
    title: str
    formula: str
    difficulty: Literal["familiar", "hard"]
    norm: Literal["rms", "layer"] | None = None
    residual: bool = False
    acts: tuple[str, ...] = ()
    eps: float | None = None
    origin: Literal["catalogue", "remix", "user"] = "catalogue"
    regime: Literal["standard", "short", "wide"] = "standard"
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One point at which an op is judged: shapes, dtypes and how the values are drawn.

    `values` names a recipe of `values.py`; `scales` multiplies each input in turn. A `required` cell is part of the
    op's contract, the `bench` cell is required and also timed, a `capability` cell only earns a badge.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: str
    scales: tuple[float, ...]
    role: Role


def rows_are_told_apart(rows: int, shapes: Iterable[Sequence[int]]) -> bool:
    """Whether no other dimension is as long, so that what has so many first elements has one for each row."""
    return not any(rows in shape[1:] for shape in shapes)
