"""The cells of an operation: the shapes, dtypes, values and magnitudes at which it is judged.

`profile="gpu"` is the full set with the bench cell. `profile="cpu"` has few rows, because Triton's
interpreter runs one program at a time. Few column counts are used, because each pair of columns and
dtype costs a candidate a compilation. Scales are powers of two, lowered where the output would not
fit into the dtype. Bounds of outputs are rough (about six standard deviations), and decide only how
far a scale is lowered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import CellSpec
from referee.ops.cell_table import cell_specs
from referee.ops.grammar import ACTIVATIONS
from referee.ops.op_cells import FROM_THE_LARGEST
from referee.ops.signatures import KINDS, Parameter, Symbol, signature
from referee.ops.spec import Cell, Dtype, Op, TensorSpec

LIMITS: dict[Dtype, float] = {"float16": 3.0e4, "bfloat16": 1.0e37, "float32": 1.0e37}
SMALLEST_SCALE = 2.0**-12
# The largest |value| that each recipe of `recipes.py` draws before scaling.
AMPLITUDES = {
    "normal": 6.0,
    "sorted": 6.0,
    "constant": 4.0,
    "one_hot": 8.0,
    "shifted": 264.0,
    "cancellation": 390.0,
    "outlier": 390.0,
    "rare": 15.0,
    "rare_none": 15.0,
    "mixed": 390.0,
    "close": 0.03,
    "closed": 9.0,
}
CLOSED = 0.01  # The largest factor of a closed gate.
_WEIGHT, _BIAS, _ROTATION, _SCALE, _INT8 = 4.0, 6.0, 1.0, 1.5, 128.0


def _largest(name: str, values: str, op: Op) -> float:
    if name in ("w", "b", "bias"):
        return _WEIGHT if name == "w" else _BIAS
    if name in ("cos", "sin"):
        return _ROTATION
    if name == "q":
        return _INT8
    if name == "scale":
        return _BIAS if op.kind == "dequant" else _SCALE
    if values == "shifted" and base_name(op) in FROM_THE_LARGEST:
        # The answer does not depend on the shift of the row.
        return AMPLITUDES["normal"]
    return AMPLITUDES.get(values, AMPLITUDES["mixed"])


def output_bound(op: Op, scales: tuple[float, ...], *, columns: int, values: str) -> float:
    """A rough upper bound of |output| for inputs drawn by the recipe `values` at these scales."""
    size = {
        name: scale * _largest(name, values, op)
        for name, scale in zip(signature(op), scales, strict=True)
    }
    data = size.get("x", 0.0) + size.get("residual", 0.0)
    spread = min(6.0, math.sqrt(columns)) if values == "normal" else math.sqrt(columns)
    degree = math.prod(ACTIVATIONS[act].degree for act in op.acts)
    turn = size.get("cos", 0.0) + size.get("sin", 0.0)
    name = base_name(op)
    if op.kind == "gate_up" and values == "closed":
        return CLOSED * size["up"]
    if op.kind == "gate_up":
        return (size["gate"] + 1.0) * size["up"]
    if op.kind in ("rms", "ln", "add_rms", "add_ln"):
        weight = size["w"] + (1.0 if name == "rmsnorm_gemma" else 0.0)
        return (spread * weight + size.get("b", 0.0)) ** degree
    if op.kind in ("norm_rope", "add_norm_rope"):
        return spread * size["w"] * turn
    if op.kind in ("rope", "rope_interleaved"):
        return data * turn
    if op.kind == "dequant":
        return size["q"] * size["scale"]
    if name == "cumsum":
        return data * (math.sqrt(columns) if values == "normal" else columns)
    if name in ACTIVATIONS:
        return max(data, 1.0) ** ACTIVATIONS[name].degree
    return 2.0 * (data + size.get("y", 0.0) + size.get("bias", 0.0)) + math.log(max(columns, 2))


def fit_scales(
    op: Op, wanted: tuple[float, ...], *, columns: int, values: str, dtype: Dtype
) -> tuple[float, ...]:
    """`wanted`, with the largest scales divided by four until the output fits into the dtype."""
    scales = [
        1.0 if name in ("q", "tgt") else scale
        for name, scale in zip(signature(op), wanted, strict=True)
    ]
    movable = [i for i, name in enumerate(signature(op)) if name not in _fixed(op)]
    while output_bound(op, tuple(scales), columns=columns, values=values) > LIMITS[dtype]:
        largest = max(movable, key=lambda i: scales[i])
        if scales[largest] <= SMALLEST_SCALE:
            break
        scales[largest] /= 4.0
    return tuple(scales)


def _fixed(op: Op) -> frozenset[str]:
    normalised = op.kind in ("rms", "ln", "add_rms", "add_ln", "norm_rope", "add_norm_rope")
    return frozenset({"q", "tgt"} | ({"x", "residual"} if normalised else set()))


Profile = Literal["cpu", "gpu"]

ODD_PAD, ALIGNMENT = 3, 16
MAX_LOGIT_SCALE, MIXED_SCALE = 8.0, 64.0
_SHORT_NAMES: dict[Dtype, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch gives them: a dimension of size 0 counts as 1."""
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
    offset = ODD_PAD if layout in ("offset", "padded-offset") else 0
    if layout in ("padded-offset", "lone") and len(shape) == 2:
        strides = (shape[1] + ODD_PAD, 1)
    elif layout == "aligned" and len(shape) == 2:
        strides = (aligned_stride(shape[1]), 1)
    elif layout == "halves":
        strides, offset = (2 * shape[1], 1), shape[1] if name == "up" else 0
    return TensorSpec(name, shape, dtype, strides, offset)


def _scale(op: Op, name: str, cell_spec: CellSpec) -> float:
    if cell_spec.scaled and name not in cell_spec.scaled:
        return 1.0
    if op.kind == "scale" and name == "scale" and (not cell_spec.scaled or "x" in cell_spec.scaled):
        # With logits and their scale both at the extremes, the softmax would be constant or
        # one-hot.
        return min(max(cell_spec.scale, 1.0 / MAX_LOGIT_SCALE), MAX_LOGIT_SCALE)
    return cell_spec.scale


def cell_of(op: Op, cell_spec: CellSpec) -> Cell:
    """The spec bound to the operation's signature, with scales that keep correct answers finite."""
    kind = KINDS[op.kind]
    sizes: dict[Symbol, int] = {
        "M": cell_spec.rows,
        "N": cell_spec.columns,
        "H": cell_spec.columns // 2,
        "1": 1,
    }
    dtype: Dtype = "float16" if op.kind == "dequant" else cell_spec.dtype

    def tensor(p: Parameter) -> TensorSpec:
        own = dtype if p.dtype == "x" else p.dtype
        return _tensor(p.name, tuple(sizes[s] for s in p.shape), own, cell_spec.layout)

    inputs = tuple(map(tensor, kind.parameters))
    shape = tuple(sizes[s] for s in kind.output)
    outputs = (TensorSpec("out", shape, dtype, contiguous_strides(shape)),)
    wanted = tuple(_scale(op, p.name, cell_spec) for p in kind.parameters)
    scales = fit_scales(op, wanted, columns=cell_spec.columns, values=cell_spec.values, dtype=dtype)
    label = cell_spec.label or cell_spec.values
    name = (
        f"{_SHORT_NAMES[dtype]}-{cell_spec.rows}x{cell_spec.columns}-{label}-x{cell_spec.scale:g}"
    )
    return Cell(name, inputs, outputs, cell_spec.values, scales, cell_spec.role)


def cells_of(op: Op, specs: Iterable[CellSpec]) -> tuple[Cell, ...]:
    """The specs bound to the operation's signature; the last one of a name counts."""
    return tuple({cell.name: cell for cell in (cell_of(op, one) for one in specs)}.values())


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
    return cells_of(op, cell_specs(op, profile))
