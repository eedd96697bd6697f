"""The cells of an op: the shapes, dtypes, values and magnitudes at which it is judged.

`profile="gpu"` is the full set with the bench cell; `profile="cpu"` a handful of few rows, because Triton's interpreter runs
one program at a time. Few distinct column counts are reused on purpose: each (columns, dtype) pair costs a candidate a
compile. Scales are powers of two; in float16 they are lowered where the op's own output would leave float16's range.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from referee.ops.ceiling import fit_scales
from referee.ops.plans import Draft, drafts
from referee.ops.signatures import KINDS, Symbol
from referee.ops.spec import Cell, Dtype, Op, TensorSpec

Profile = Literal["cpu", "gpu"]

ODD_PAD, ALIGNMENT = 3, 16
MAX_LOGIT_SCALE, MIXED_SCALE = 8.0, 64.0
_SHORT_NAMES: dict[Dtype, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch gives a fresh tensor (a dimension of size 0 counts as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def aligned_stride(columns: int, more: int = 0) -> int:
    """How far rows lie apart that have a gap and all begin where vectors do; `more` steps further."""
    return (columns // ALIGNMENT + 1 + more) * ALIGNMENT


def _tensor(name: str, shape: tuple[int, ...], dtype: Dtype, layout: str) -> TensorSpec:
    strides = contiguous_strides(shape)
    if layout == "padded-offset" and len(shape) == 2:
        return TensorSpec(name, shape, dtype, (shape[1] + ODD_PAD, 1), ODD_PAD)
    if layout == "aligned" and len(shape) == 2:
        return TensorSpec(name, shape, dtype, (aligned_stride(shape[1]), 1))
    return TensorSpec(name, shape, dtype, strides, ODD_PAD if layout in ("offset", "padded-offset") else 0)


def _scale(op: Op, name: str, draft: Draft) -> float:
    if draft.scaled and name not in draft.scaled:
        return 1.0
    if op.kind == "scale" and name == "scale" and (not draft.scaled or "x" in draft.scaled):
        # A scalar that multiplies the logits: with both at their extremes the softmax would be constant, or one-hot throughout.
        return min(max(draft.scale, 1.0 / MAX_LOGIT_SCALE), MAX_LOGIT_SCALE)
    return draft.scale


def cell_of(op: Op, draft: Draft) -> Cell:
    """The draft bound to the op's signature: shapes and dtypes of every operand, scales that keep a right answer finite."""
    kind = KINDS[op.kind]
    sizes: dict[Symbol, int] = {"M": draft.rows, "N": draft.columns, "H": draft.columns // 2, "1": 1}
    dtype: Dtype = "float16" if op.kind == "dequant" else draft.dtype
    inputs = tuple(
        _tensor(p.name, tuple(sizes[s] for s in p.shape), dtype if p.dtype == "x" else p.dtype, draft.layout) for p in kind.parameters
    )
    shape = tuple(sizes[s] for s in kind.output)
    outputs = (TensorSpec("out", shape, dtype, contiguous_strides(shape)),)
    wanted = tuple(_scale(op, p.name, draft) for p in kind.parameters)
    scales = fit_scales(op, wanted, columns=draft.columns, values=draft.values, dtype=dtype)
    label = draft.label or draft.values
    name = f"{_SHORT_NAMES[dtype]}-{draft.rows}x{draft.columns}-{label}-x{draft.scale:g}"
    return Cell(name, inputs, outputs, draft.values, scales, draft.role)


def of_mixed_values(op: Op, cell: Cell) -> Cell:
    """The cell with rows of many kinds and magnitudes, where a right answer allows them. A user's cell as it is."""
    if op.kind not in KINDS:
        return cell
    columns = cell.inputs[0].shape[-1]
    draft = Draft(cell.inputs[0].shape[0], columns, cell.outputs[0].dtype, "mixed", MIXED_SCALE)
    wanted = tuple(_scale(op, spec.name, draft) for spec in cell.inputs)
    return replace(cell, values="mixed", scales=fit_scales(op, wanted, columns=columns, values="mixed", dtype=draft.dtype))


def cells(op: Op, *, profile: Profile) -> tuple[Cell, ...]:
    """The cells of a catalogue or remix op, the bench cell first in the gpu profile. A user op's cells live in its task."""
    made = {cell.name: cell for cell in (cell_of(op, draft) for draft in drafts(op, profile))}
    return tuple(made.values())
