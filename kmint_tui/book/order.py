"""The order in which a book is built, and the shapes of a book: both are decided here alone.

The operations that models run most come first. After them come the others in the order of the
catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable

from referee.ops import catalogue, functions
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Op

FIRST = (
    *("rmsnorm", "add_rmsnorm", "swiglu", "rope", "softmax", "cross_entropy", "layernorm"),
    *("add_layernorm", "geglu", "gelu", "silu", "rope_qk", "swiglu_packed", "qknorm_rope"),
    *("rmsnorm_gemma", "log_softmax", "bias_gelu", "softmax_causal", "softmax_masked", "glu"),
    *("rope_interleaved", "softcap_softmax", "softmax_scale", "l2norm", "relu2", "reglu"),
    *("dequant_int8", "quantize_fp8_rows", "quantize_int8_rows", "rmsnorm_fp8", "rmsnorm_int8"),
    *("add_rmsnorm_both", "rmsnorm_backward", "layernorm_backward", "swiglu_backward"),
    *("cross_entropy_backward", "moe_gate", "adamw_step"),
)
"""The operations that transformers run most in inference, then in training."""
SHAPES = ("8192x4096", "32768x1024", "2048x16384", "64x4096")
"""Shapes of rows: a block of training, short and long rows, and a decode step."""
ROPE_SHAPES = ("32768x128", "4096x128")
DTYPE = "bf16"


def in_order(names: Iterable[str] | None = None) -> tuple[Op, ...]:
    """The operations of these names, or all, the most used first."""
    every = {op.name: op for op in (*catalogue(), *functions())}
    wanted = set(every) if names is None else set(names)
    ordered = dict.fromkeys((*(name for name in FIRST if name in every), *every))
    return tuple(every[name] for name in ordered if name in wanted)


def usual_shapes(op: Op) -> tuple[str, ...]:
    """The shapes of a book for this operation; empty where its examples say its sizes."""
    if op.kind not in KINDS:
        return ()
    return ROPE_SHAPES if op.kind in ROPE_KINDS else SHAPES
