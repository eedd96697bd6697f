"""The functions that are timed on a GPU, and their sizes: thirty of all groups, chosen before any
was timed.

Every float input is bfloat16. Leading dimensions together are M rows, and a row has N columns.
Heads of 128 and rotary tables have no rows of that length, but the same number of elements.
"""

from __future__ import annotations

SIZES = ((8192, 4096), (32768, 1024))
"""M and N."""

TIMED: dict[str, dict[str, str]] = {
    "norms": {
        "llama_rms_norm": "hidden_states=bf16[B,S,N] weight=bf16[N]",
        "layer_norm_manual": "x=bf16[B,S,N] gamma=bf16[N] beta=bf16[N]",
        "layer_norm_no_affine": "x=bf16[M,N]",
        "pre_norm_residual": "x=bf16[B,S,N] residual=bf16[B,S,N] weight=bf16[N] bias=bf16[N]",
        "rms_then_gate": "x=bf16[M,N] z=bf16[M,N] weight=bf16[N]",
        "unit_vectors": "x=bf16[M,N]",
        "adaln_modulate": "x=bf16[B,S,N] shift=bf16[B,N] scale=bf16[B,N]",
        "deep_norm": "x=bf16[B,S,N] sublayer=bf16[B,S,N] weight=bf16[N] bias=bf16[N]",
    },
    "gates": {
        "swiglu_packed": "x=bf16[M,2*N]",
        "geglu_packed": "x=bf16[B,S,2*N]",
        "silu_mul_clamped": "gate=bf16[M,N] up=bf16[M,N]",
        "new_gelu": "x=bf16[M,N]",
        "bias_gelu_residual": "x=bf16[B,S,N] bias=bf16[N] residual=bf16[B,S,N]",
        "layer_scale_residual": "x=bf16[B,S,N] branch=bf16[B,S,N] gamma=bf16[N] keep=bf16[B,1,1]",
        "glu_sigmoid_bias": "x=bf16[M,2*N] bias=bf16[2*N]",
        "dropout_mask_residual": "x=bf16[M,N] mask=bool[M,N] residual=bf16[M,N]",
    },
    "rows": {
        "masked_softmax": "scores=bf16[B,H,S,N] mask=i64[B,1,S,N]:0..2",
        "scaled_softmax_bias": "scores=bf16[B,H,S,N] bias=bf16[H,S,N]",
        "log_softmax_temperature": "logits=bf16[M,N]",
        "cross_entropy_rows": "logits=bf16[M,N] labels=i64[M]:0..N",
        "token_logprobs": "logits=bf16[B,S,N] tokens=i64[B,S]:0..N",
        "entropy": "logits=bf16[M,N]",
        "kl_students": "student=bf16[M,N] teacher=bf16[M,N]",
        "row_minmax": "x=bf16[M,N]",
    },
    "layouts": {
        "apply_rotary": "q=bf16[B,H,R,128] cos=bf16[R,128] sin=bf16[R,128]",
        "quantize_rows_int8": "x=bf16[M,N]",
        "lion_step": "param=bf16[M,N] grad=bf16[M,N] momentum=bf16[M,N]",
        "alibi_scores": "scores=bf16[B,H,S,N] slopes=bf16[H]",
        "rwkv_shift_mix": "x=bf16[B,S,N] mix=bf16[N]",
        "logit_adjust": "logits=bf16[M,N] prior=bf16[N]:uniform",
    },
}
HEADS, BATCH = 16, 4
LAST = 128


def at_sizes(inputs: str, rows: int, columns: int) -> str:
    """The inputs with a number for every symbol, by which the referee times."""
    heads = HEADS if "[B,H," in inputs else 1
    numbers = {
        "M": rows,
        "N": columns,
        "B": BATCH,
        "H": heads,
        "S": rows // BATCH // heads,
        "R": rows * columns // BATCH // heads // LAST,
    }
    symbols = [
        one
        for one in numbers
        if any(f"{before}{one}{after}" in inputs for before in "[,*" for after in ",]")
    ]
    return " ".join((inputs, *(f"{one}={numbers[one]}" for one in symbols)))
