"""Candidates in many styles, all of which must be screened, traced and compiled; with the tensors
they take and return.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from referee.ops.spec import Cell, Dtype, TensorSpec
from tests.referee.trace.good_features import (
    CONSTEXPR_DTYPE,
    CROSS_ENTROPY,
    DATA_MOVEMENT,
    DEQUANT,
    EARLY_RETURN,
    HELPERS,
    KEYWORDS,
    LIBDEVICE,
    OFFSET_VIEWS,
    OPTIONAL,
    PERSISTENT,
    SCANS,
    SCRATCH,
    TUPLES,
    TWO_OUTPUTS,
)
from tests.referee.trace.good_structures import (
    AUTOTUNE,
    AUTOTUNE_OF_HEURISTICS,
    FLAT,
    HEURISTICS,
    LOOPED,
    SEVERAL_ROWS,
    STRIDED_GRID,
    TWO_KERNELS,
    WHOLE_ROW,
)


def tensor(
    name: str, shape: tuple[int, ...], dtype: Dtype = "float16", offset: int = 0
) -> TensorSpec:
    """A dense tensor."""
    return TensorSpec(
        name, shape, dtype, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))), offset
    )


def cell(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Cell:
    """A required cell."""
    return Cell("cell", inputs, outputs, "normal", (1.0,) * len(inputs), "required")


def rows(
    names: str,
    *,
    extra: tuple[TensorSpec, ...] = (),
    shape: tuple[int, int] = (37, 257),
    dtype: Dtype = "float16",
) -> Cell:
    """Matrices of one shape, further inputs, and one output of that shape."""
    return cell(
        (*(tensor(name, shape, dtype) for name in names.split()), *extra),
        (tensor("out", shape, dtype),),
    )


@dataclass(frozen=True)
class Good:
    """A candidate and one cell for it."""

    source: str
    cell: Cell


_WEIGHT = (tensor("w", (257,)),)

GOOD: dict[str, Good] = {
    "whole_row": Good(WHOLE_ROW, rows("x")),
    "looped": Good(LOOPED, rows("x", extra=_WEIGHT)),
    "several_rows": Good(SEVERAL_ROWS, rows("x", dtype="float32")),
    "flat": Good(FLAT, rows("x", dtype="bfloat16")),
    "two_kernels": Good(TWO_KERNELS, rows("x", extra=_WEIGHT)),
    "autotune": Good(AUTOTUNE, rows("x")),
    "heuristics": Good(HEURISTICS, rows("x")),
    "autotune_of_heuristics": Good(AUTOTUNE_OF_HEURISTICS, rows("x")),
    "strided_grid": Good(STRIDED_GRID, rows("gate up")),
    "helpers": Good(HELPERS, rows("x")),
    "libdevice": Good(LIBDEVICE, rows("x")),
    "constexpr_dtype": Good(CONSTEXPR_DTYPE, rows("x", dtype="bfloat16")),
    "scratch": Good(SCRATCH, rows("x")),
    "optional": Good(OPTIONAL, rows("x")),
    "tuples": Good(TUPLES, rows("x residual")),
    "offset_views": Good(OFFSET_VIEWS, rows("x", shape=(5, 128))),
    "data_movement": Good(DATA_MOVEMENT, rows("x")),
    "persistent": Good(PERSISTENT, rows("x")),
    "keywords": Good(KEYWORDS, rows("x")),
    "scans": Good(SCANS, rows("x")),
    "two_outputs": Good(
        TWO_OUTPUTS,
        cell(
            (tensor("x", (37, 257)),),
            (tensor("mean", (37,), "float32"), tensor("rstd", (37,), "float32")),
        ),
    ),
    "cross_entropy": Good(
        CROSS_ENTROPY,
        cell((tensor("x", (37, 513)), tensor("tgt", (37,), "int64")), (tensor("out", (37,)),)),
    ),
    "dequant": Good(
        DEQUANT,
        cell(
            (tensor("q", (37, 513), "int8"), tensor("scale", (37, 1))), (tensor("out", (37, 513)),)
        ),
    ),
    "early_return": Good(EARLY_RETURN, rows("x", shape=(0, 257))),
    "offset_input": Good(
        EARLY_RETURN, cell((tensor("x", (3, 5), offset=3),), (tensor("out", (3, 5)),))
    ),
}
