"""The cells of an operation: the shapes, dtypes, values and magnitudes at which it is judged.

`profile="gpu"` is the full set with the bench cell. `profile="cpu"` has few rows, because Triton's
interpreter runs one program at a time. Few column counts are used, because each pair of columns and
dtype costs a candidate a compilation. Scales are powers of two, lowered where the output would not
fit into float16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from referee.ops.ceiling import fit_scales
from referee.ops.cell_spec import CellSpec
from referee.ops.cell_table import cell_specs
from referee.ops.signatures import KINDS, Symbol
from referee.ops.spec import Cell, Dtype, Op, TensorSpec

Profile = Literal["cpu", "gpu"]

ODD_PAD, ALIGNMENT = 3, 16
MAX_LOGIT_SCALE, MIXED_SCALE = 8.0, 64.0
_SHORT_NAMES: dict[Dtype, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch gives a fresh tensor. A dimension of size 0 counts as
    1.
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def aligned_stride(columns: int, more: int = 0) -> int:
    """Stride of rows with a gap that all begin on a vector boundary; `more` widens the gap."""
    return (columns // ALIGNMENT + 1 + more) * ALIGNMENT


def _tensor(name: str, shape: tuple[int, ...], dtype: Dtype, layout: str) -> TensorSpec:
    strides = contiguous_strides(shape)
    if layout == "padded-offset" and len(shape) == 2:
        return TensorSpec(name, shape, dtype, (shape[1] + ODD_PAD, 1), ODD_PAD)
    if layout == "aligned" and len(shape) == 2:
        return TensorSpec(name, shape, dtype, (aligned_stride(shape[1]), 1))
    if layout == "lone" and len(shape) == 2:
        return TensorSpec(name, shape, dtype, (shape[1] + ODD_PAD, 1))
    if layout == "halves":
        return TensorSpec(name, shape, dtype, (2 * shape[1], 1), shape[1] if name == "up" else 0)
    return TensorSpec(
        name, shape, dtype, strides, ODD_PAD if layout in ("offset", "padded-offset") else 0
    )


def _scale(op: Op, name: str, cell_spec: CellSpec) -> float:
    if cell_spec.scaled and name not in cell_spec.scaled:
        return 1.0
    if op.kind == "scale" and name == "scale" and (not cell_spec.scaled or "x" in cell_spec.scaled):
        # With logits and their scale both at the extremes, the softmax would be constant or
        # one-hot.
        return min(max(cell_spec.scale, 1.0 / MAX_LOGIT_SCALE), MAX_LOGIT_SCALE)
    return cell_spec.scale


def cell_of(op: Op, cell_spec: CellSpec) -> Cell:
    """The spec bound to the operation's signature: shapes and dtypes of every operand, and scales
    that keep a correct answer finite.
    """
    kind = KINDS[op.kind]
    sizes: dict[Symbol, int] = {
        "M": cell_spec.rows,
        "N": cell_spec.columns,
        "H": cell_spec.columns // 2,
        "1": 1,
    }
    dtype: Dtype = "float16" if op.kind == "dequant" else cell_spec.dtype
    inputs = tuple(
        _tensor(
            p.name,
            tuple(sizes[s] for s in p.shape),
            dtype if p.dtype == "x" else p.dtype,
            cell_spec.layout,
        )
        for p in kind.parameters
    )
    shape = tuple(sizes[s] for s in kind.output)
    outputs = (TensorSpec("out", shape, dtype, contiguous_strides(shape)),)
    wanted = tuple(_scale(op, p.name, cell_spec) for p in kind.parameters)
    scales = fit_scales(op, wanted, columns=cell_spec.columns, values=cell_spec.values, dtype=dtype)
    label = cell_spec.label or cell_spec.values
    name = (
        f"{_SHORT_NAMES[dtype]}-{cell_spec.rows}x{cell_spec.columns}-{label}-x{cell_spec.scale:g}"
    )
    return Cell(name, inputs, outputs, cell_spec.values, scales, cell_spec.role)


def of_mixed_values(op: Op, cell: Cell) -> Cell:
    """The cell with rows of many kinds and magnitudes. A user's cell stays as it is."""
    if op.kind not in KINDS:
        return cell
    columns = cell.inputs[0].shape[-1]
    cell_spec = CellSpec(
        cell.inputs[0].shape[0], columns, cell.outputs[0].dtype, "mixed", MIXED_SCALE
    )
    wanted = tuple(_scale(op, spec.name, cell_spec) for spec in cell.inputs)
    return replace(
        cell,
        values="mixed",
        scales=fit_scales(op, wanted, columns=columns, values="mixed", dtype=cell_spec.dtype),
    )


def cells(op: Op, *, profile: Profile) -> tuple[Cell, ...]:
    """The cells of a catalogue or remix operation, with the bench cell first in the gpu profile.

    The cells of a user's operation are in its task.
    """
    made = {
        cell.name: cell
        for cell in (cell_of(op, cell_spec) for cell_spec in cell_specs(op, profile))
    }
    return tuple(made.values())
