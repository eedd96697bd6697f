"""Bounds of an operation's outputs, so that a cell's scales keep a correct answer finite in its
dtype.

The bounds are rough (about six standard deviations). They only decide how far a scale is lowered.
"""

from __future__ import annotations

import math

from referee.ops.activations import ACTIVATIONS
from referee.ops.catalogue import base_name
from referee.ops.op_cells import FROM_THE_LARGEST
from referee.ops.signatures import signature
from referee.ops.spec import Dtype, Op

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
