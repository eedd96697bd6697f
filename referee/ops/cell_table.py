"""The table of fixed test cases for each family: rows, columns, dtype, values, scale,
layout, role.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import (
    BF16,
    DATA,
    F16,
    F32,
    FAINT,
    FAINT_BF16,
    FAINT_HALF,
    HUGE,
    LARGE_ROWS,
    LOW,
    SMALL,
    TIMED_ROWS,
    CellSpec,
)
from referee.ops.op_cells import own_cells
from referee.ops.signatures import ROPE_KINDS
from referee.ops.spec import Op

_CPU = (
    CellSpec(5, 1000, F32, "mixed"),
    CellSpec(2, 4097, F16, "normal", 64.0),
    CellSpec(8, 1000, BF16, "mixed", 64.0),
    CellSpec(5, 128, F16, "normal", LOW, scaled=DATA),
    CellSpec(2, 1000, F32, "normal", SMALL),
    # Widths that tiles and vectors divide and that are not powers of two; whole blocks would
    # overrun.
    CellSpec(3, 640, F32, "normal", 64.0),
    CellSpec(2, 5120, BF16, "sorted"),
    CellSpec(1, 15360, F16, "normal", 8.0),
    # Small tails of activations, without a larger answer in the row that would hide errors.
    CellSpec(1, 1000, F32, "normal", 4.0),
    # A maximum that still grows in the last of several blocks.
    CellSpec(2, 4600, F32, "sorted"),
    CellSpec(3, 1, F32, "normal"),
    # Equal numbers of rows and columns, where a kernel may confuse the axes.
    CellSpec(2, 2, F32, "normal"),
    # More rows than multiprocessors, and more tiles than usual; no other case runs this many
    # programs.
    CellSpec(300, 129, F16, "mixed"),
    # Rows longer than usual block sizes; three rows let partial results of split rows collide.
    CellSpec(2, 16385, F16, "normal", 8.0),
    CellSpec(3, 33001, F32, "mixed"),
    # Sizes that blocks, tiles and unrolled loops divide, where kernels omit masks; a dozen rows.
    CellSpec(8, 4096, F16, "mixed"),
    CellSpec(16, 1024, F32, "mixed"),
    # A width with special kernels, and rows that their tiles do not divide.
    CellSpec(37, 256, F32, "normal"),
    # Very short rows. Kernels take several at once: a whole tile, or half a tile.
    CellSpec(8, 10, F32, "normal"),
    CellSpec(64, 48, F16, "normal"),
    CellSpec(32, 100, F32, "mixed"),
    # A width that only small blocks divide, and values beyond float16.
    CellSpec(1, 2560, BF16, "normal", HUGE / 2),
    # The largest usual block, and a longer row; bfloat16 sums of many elements.
    CellSpec(2, 8192, F32, "normal"),
    CellSpec(2, 9000, BF16, "mixed"),
    CellSpec(2, 1000, F32, "normal", HUGE, scaled=DATA, label="huge"),
    # Rows entirely beyond a usual starting value of a maximum; bfloat16 where float16 has no such
    # values.
    CellSpec(2, 1000, F32, "shifted", 1024.0, scaled=DATA, label="far"),
    CellSpec(2, 1000, BF16, "normal", HUGE, scaled=DATA, label="huge"),
    # Widths of models: tiles of 2048 divide them, tiles of 4096 do not.
    CellSpec(2, 14336, F16, "normal", 2.0),
    CellSpec(1, 12288, BF16, "normal"),
    CellSpec(1, 6144, F32, "normal"),
    # The stride of a single row is arbitrary.
    CellSpec(1, 1000, F32, "normal", layout="lone", label="lone"),
)
_GPU = (
    CellSpec(TIMED_ROWS, 4096, F16, "normal", role="bench"),
    CellSpec(37, 4097, F16, "mixed", 64.0),
    CellSpec(37, 4097, BF16, "mixed", 64.0),
    CellSpec(37, 4097, F32, "mixed"),
    CellSpec(37, 4097, F32, "normal", 64.0),
    CellSpec(37, 4097, F32, "cancellation", 8.0),
    CellSpec(1, 4096, F16, "sorted", 8.0),
    CellSpec(65, 4096, F16, "mixed", LOW, scaled=DATA),
    CellSpec(5, 4097, F16, "shifted"),
    CellSpec(1, 1000, BF16, "normal", 8.0),
    CellSpec(65, 1000, BF16, "one_hot"),
    CellSpec(257, 128, F32, "normal", SMALL),
    CellSpec(1001, 127, F16, "mixed"),
    CellSpec(3, 8192, F16, "mixed", 32.0),
    CellSpec(33, 1, F32, "normal"),
    # More rows than the second and third grid dimension allow, and not a multiple of any tile.
    CellSpec(65_599, 128, F32, "mixed"),
    # Widths that tiles and vectors divide and that are not powers of two; whole blocks would
    # overrun.
    CellSpec(3, 1920, F32, "constant"),
    CellSpec(3, 8448, F16, "sorted", 8.0),
    CellSpec(1031, 7168, BF16, "mixed"),
    # More elements than float32 can index exactly, with long fp32 sums and many rows.
    CellSpec(4111, 4097, F32, "mixed"),
    # At least as many bytes as the timed cell, in the other dtypes.
    CellSpec(TIMED_ROWS + 5, 4097, BF16, "mixed"),
    CellSpec(TIMED_ROWS + 3, 1920, F32, "normal"),
    CellSpec(37, 4097, F32, "normal", HUGE, scaled=DATA, label="huge"),
    CellSpec(1, 4096, F16, "normal", layout="lone", label="lone"),
)
_GPU_CAPABILITIES = (
    CellSpec(37, 4096, F16, "normal", role="capability", layout="padded-offset", label="padded"),
    CellSpec(37, 4096, F16, "normal", role="capability", layout="aligned", label="padded-aligned"),
    CellSpec(37, 4096, F16, "normal", role="capability", layout="offset", label="offset"),
    *(
        CellSpec(0, columns, F16, "normal", role="capability", label="empty")
        for columns in (4096, 127)
    ),
    CellSpec(37, 4097, F32, "nonfinite", role="capability"),
    CellSpec(37, 4097, F32, "masked", role="capability", label="nonfinite-masked"),
    # Kernels may treat many rows differently.
    CellSpec(
        TIMED_ROWS, 4096, F16, "normal", role="capability", layout="padded-offset", label="padded"
    ),
    CellSpec(TIMED_ROWS, 4096, F16, "normal", role="capability", layout="offset", label="offset"),
    CellSpec(TIMED_ROWS, 4096, F16, "nonfinite", role="capability"),
    CellSpec(LARGE_ROWS, 4096, F16, "normal", role="capability", label="large"),
)
_CPU_CAPABILITIES = (
    CellSpec(3, 1000, F32, "normal", role="capability", layout="padded-offset", label="padded"),
    CellSpec(3, 1000, F32, "normal", role="capability", layout="aligned", label="padded-aligned"),
    CellSpec(2, 1000, F32, "normal", role="capability", layout="offset", label="offset"),
    CellSpec(0, 1000, F32, "normal", role="capability", label="empty"),
    CellSpec(7, 2500, F32, "nonfinite", role="capability"),
    CellSpec(6, 2500, F32, "masked", role="capability", label="nonfinite-masked"),
    # Capabilities hold for all dtypes.
    CellSpec(3, 300, F16, "normal", role="capability", layout="padded-offset", label="padded"),
    *(
        CellSpec(3, 300, dtype, "normal", role="capability", layout="offset", label="offset")
        for dtype in (F16, BF16)
    ),
    *(
        CellSpec(0, columns, F16, "normal", role="capability", label="empty")
        for columns in (100, 5000)
    ),
    CellSpec(7, 129, F16, "nonfinite", role="capability"),
    CellSpec(7, 129, BF16, "nonfinite", role="capability"),
    CellSpec(6, 129, F16, "masked", role="capability", label="nonfinite-masked"),
    # Rows of several blocks.
    CellSpec(2, 4600, BF16, "normal", role="capability", layout="padded-offset", label="padded"),
    CellSpec(2, 4600, BF16, "normal", role="capability", layout="aligned", label="padded-aligned"),
)
_ROPE_CPU = (
    CellSpec(5, 128, F32, "mixed"),
    CellSpec(5, 128, F16, "normal", 64.0),
    CellSpec(5, 64, BF16, "mixed", 64.0),
    CellSpec(3, 64, F16, "normal", LOW, scaled=DATA),
    CellSpec(3, 256, F32, "normal", 64.0),
    CellSpec(2, 128, F32, "normal", SMALL),
    CellSpec(1, 256, F32, "normal"),
    CellSpec(300, 64, F16, "mixed"),
    CellSpec(16, 128, BF16, "mixed"),
    CellSpec(2, 256, F16, "mixed"),
    CellSpec(2, 256, BF16, "mixed"),
    CellSpec(32, 64, F32, "mixed"),
    CellSpec(3, 64, F16, "normal", FAINT_HALF, scaled=DATA),
    CellSpec(3, 128, BF16, "normal", FAINT_BF16, scaled=DATA),
    CellSpec(3, 64, F32, "normal", FAINT, scaled=DATA),
    CellSpec(1, 128, F32, "normal", layout="lone", label="lone"),
)
_ROPE_GPU = (
    CellSpec(32768, 128, F16, "normal", role="bench"),
    CellSpec(37, 128, F16, "mixed", 64.0),
    CellSpec(37, 256, BF16, "mixed", 64.0),
    CellSpec(37, 64, F16, "mixed", 64.0),
    CellSpec(37, 128, F32, "mixed"),
    CellSpec(37, 128, F32, "normal", 64.0),
    CellSpec(37, 128, F32, "cancellation", 8.0),
    CellSpec(257, 128, F32, "normal", SMALL),
    CellSpec(1, 128, F16, "normal", 8.0),
    CellSpec(1000, 64, F16, "normal", LOW, scaled=DATA),
    CellSpec(4097, 128, BF16, "normal"),
    CellSpec(1, 256, BF16, "normal", 8.0),
    CellSpec(65, 256, BF16, "one_hot"),
    CellSpec(129, 256, F32, "shifted"),
    CellSpec(65_599, 64, F16, "normal"),
    CellSpec(32_773, 256, BF16, "mixed"),
    CellSpec(32_771, 128, F32, "mixed"),
    CellSpec(37, 64, F16, "normal", FAINT_HALF, scaled=DATA),
    CellSpec(1, 128, F16, "normal", layout="lone", label="lone"),
)
_ROPE_ROWS = {TIMED_ROWS: 32768, LARGE_ROWS: 32 * LARGE_ROWS}
_ROPE_CAPABILITIES_CPU = (
    *(
        CellSpec(3, 80, dtype, "normal", role="capability", label="head80")
        for dtype in (F32, F16, BF16)
    ),
    *(replace(cell_spec, columns=128) for cell_spec in _CPU_CAPABILITIES),
)
_ROPE_CAPABILITIES_GPU = (
    *(
        CellSpec(37, 80, dtype, "normal", role="capability", label="head80")
        for dtype in (F16, BF16, F32)
    ),
    CellSpec(_ROPE_ROWS[TIMED_ROWS], 80, F16, "normal", role="capability", label="head80"),
    *(
        replace(cell_spec, columns=128, rows=_ROPE_ROWS.get(cell_spec.rows, cell_spec.rows))
        for cell_spec in _GPU_CAPABILITIES
    ),
)
_WIDE_GPU = (
    CellSpec(8, 131072, F16, "normal", role="bench"),
    CellSpec(8, 131072, F16, "mixed", 64.0),
    CellSpec(8, 131072, F32, "mixed"),
    CellSpec(5, 65537, BF16, "mixed", 32.0),
    CellSpec(5, 65537, F32, "normal", 64.0),
    CellSpec(5, 65537, F32, "cancellation", 8.0),
    CellSpec(16, 40960, F16, "mixed", 16.0),
    CellSpec(16, 40000, F16, "normal", LOW, scaled=DATA),
    CellSpec(32, 16384, BF16, "normal"),
    CellSpec(1, 16384, BF16, "sorted", 8.0),
    CellSpec(3, 16384, F32, "normal", SMALL),
    CellSpec(7, 1000, BF16, "mixed", 64.0),
    CellSpec(33, 1, F32, "normal"),
)
_WIDEST = {CellSpec(3, 33001, F32, "mixed"): CellSpec(1, 131072, F32, "mixed")}
_WIDE_CPU = (
    replace(_CPU[0], columns=5000),
    *(_WIDEST.get(cell_spec, cell_spec) for cell_spec in _CPU[1:]),
)
_NARROWER = {4096: 2048, 4097: 2049}


def _shortened(cell_spec: CellSpec) -> CellSpec:
    rows = (
        2 * cell_spec.rows
        if cell_spec.rows == TIMED_ROWS or cell_spec.label == "large"
        else cell_spec.rows
    )
    return replace(
        cell_spec, rows=rows, columns=_NARROWER.get(cell_spec.columns, cell_spec.columns)
    )


def _widened(cell_spec: CellSpec) -> CellSpec:
    return replace(
        cell_spec,
        rows=LARGE_ROWS // 4 if cell_spec.label == "large" else min(cell_spec.rows, 16),
        columns=16384,
    )


def _all_specs(op: Op, cpu: bool) -> tuple[CellSpec, ...]:
    if op.kind in ROPE_KINDS:
        return (
            (*_ROPE_CPU, *_ROPE_CAPABILITIES_CPU) if cpu else (*_ROPE_GPU, *_ROPE_CAPABILITIES_GPU)
        )
    if op.regime == "wide":
        return (
            (*_WIDE_CPU, *_CPU_CAPABILITIES)
            if cpu
            else (*_WIDE_GPU, *map(_widened, _GPU_CAPABILITIES))
        )
    plan = (*_CPU, *_CPU_CAPABILITIES) if cpu else (*_GPU, *_GPU_CAPABILITIES)
    return tuple(map(_shortened, plan)) if op.regime == "short" and not cpu else plan


def cell_specs(op: Op, profile: Literal["cpu", "gpu"]) -> tuple[CellSpec, ...]:
    """The cells of an operation before its signature is applied."""
    finite_only = base_name(op) in _FINITE_ONLY
    own = own_cells(op, profile == "cpu")
    every = (
        *_all_specs(op, profile == "cpu"),
        *(map(_shortened, own) if op.regime == "short" and profile == "gpu" else own),
    )
    masks = base_name(op) in _MASKED
    return tuple(
        cell_spec
        for cell_spec in every
        if (cell_spec.values != "nonfinite" or not finite_only)
        and (cell_spec.values != "masked" or masks)
    )


# These operations take masks, for which some libraries use the dtype's least number.
_MASKED = frozenset({"softmax", "log_softmax", "cross_entropy"})
# int8 has no NaN, and a running sum after NaN or infinity says nothing more.
_FINITE_ONLY = frozenset({"cumsum", "dequant_int8"})
