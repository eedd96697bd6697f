"""Catalogue operations that are functions, with the inputs that they are judged at. Torch-free.

Each is a function in a file of `functions/`, named as the operation. Its docstring is the title,
and its parameters are the arguments.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from referee.ops.spec import Op

FOLDER = Path(__file__).with_name("functions")
DTYPES = ("bf16", "f16", "f32")
_ANY = "T"
"""Stands for each of DTYPES in turn."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One operation that is a function.

    `signature` is that of `run`, with symbolic shapes. `inputs` are texts of `--input`, and `words`
    are synonyms.
    """

    op: Op
    file: Path
    signature: str
    inputs: tuple[str, ...]
    words: tuple[str, ...] = ()


_ROWS = "x=T[M,N]"
_PACKED = "x=T[M,2*N]"
_LOGITS = "x=T[M,V]"
_TARGET = f"{_LOGITS} target=i64[M]:0..V"
_HEADS = "x=T[B,H,S,128]"
_PAIR = "q=T[B,H,S,128] k=T[B,K,S,128]"
_TABLES = "cos=T[S,128] sin=T[S,128]"

_TABLE: dict[str, dict[str, tuple[str, str]]] = {
    "norms": {
        "add_rmsnorm_both": (
            f"{_ROWS} residual=T[M,N] w=T[N]",
            "fused add rmsnorm residual, prenorm",
        ),
        "add_layernorm_both": (
            f"{_ROWS} residual=T[M,N] w=T[N] b=T[N]",
            "fused add layernorm residual, prenorm",
        ),
        "rmsnorm_plain": (_ROWS, "rmsnorm without weight, no affine"),
        "layernorm_no_bias": (f"{_ROWS} w=T[N]", "layernorm without bias, bias free"),
        "layernorm_plain": (_ROWS, "layernorm without affine, no affine, without weight"),
        "groupnorm_silu": ("x=T[B,32*C,H,W] w=T[32*C] b=T[32*C]", "group norm swish, diffusion"),
        "adaln_modulate": (
            "x=T[B,S,N] shift=T[B,N] scale=T[B,N]",
            "adaptive layer norm, adaln zero, dit, modulation",
        ),
        "adaln_gate": ("x=T[B,S,N] branch=T[B,S,N] gate=T[B,N]", "adaln zero, dit, gated residual"),
    },
    "gates": {
        "swiglu_packed": (_PACKED, "silu and mul, fused gate up, one input"),
        "geglu_packed": (_PACKED, "gelu and mul, fused gate up, one input"),
        "glu_packed": (_PACKED, "gated linear unit, one input"),
        "bias_swiglu_packed": (f"{_PACKED} bias=T[2*N]", "silu and mul, one input"),
        "dropout_add": (
            f"{_ROWS} keep=bool[M,N] residual=T[M,N] p=0.1",
            "dropout mask residual, bias dropout add",
        ),
    },
    "rotary": {
        "rope_qk": (f"{_PAIR} {_TABLES}", "rotary queries keys, apply rotary pos emb"),
        "rope_heads": (f"{_HEADS} {_TABLES}", "rotary broadcast tables"),
        "rope_partial": (f"{_HEADS} cos=T[S,64] sin=T[S,64]", "partial rotary, rotary percentage"),
        "qknorm_rope_heads": (f"{_HEADS} w=T[128] {_TABLES}", "query key norm, rotary"),
        "qknorm_rope_qk": (
            f"{_PAIR} qw=T[128] kw=T[128] {_TABLES}",
            "query key norm, rotary queries keys",
        ),
    },
    "quantise": {
        "quantize_int8_rows": (_ROWS, "dynamic quantisation, per token, w8a8"),
        "quantize_int8_blocks": ("x=T[M,128*K]", "dynamic quantisation, per block, group"),
        "quantize_fp8_rows": (_ROWS, "dynamic quantisation, per token, float8, e4m3"),
        "quantize_fp8_blocks": ("x=T[M,128*K]", "dynamic quantisation, per block, float8, e4m3"),
        "rmsnorm_int8": (f"{_ROWS} w=T[N]", "rmsnorm dynamic quantisation, norm quant"),
        "rmsnorm_fp8": (f"{_ROWS} w=T[N]", "rmsnorm dynamic quantisation, norm quant, float8"),
        "swiglu_int8": (_PACKED, "silu and mul quant, dynamic quantisation"),
        "swiglu_fp8": (_PACKED, "silu and mul quant, dynamic quantisation, float8"),
    },
    "losses": {
        "softmax_masked": (f"{_ROWS} mask=bool[M,N]", "attention mask softmax, masked fill"),
        "softmax_causal": ("x=T[B,H,S,S]", "attention causal mask softmax, triangular"),
        "cross_entropy_ignore": (_TARGET, "ignore index, padding, nll"),
        "cross_entropy_smooth": (_TARGET, "label smoothing, ignore index"),
        "cross_entropy_z": (_TARGET, "z loss, logsumexp"),
        "logsumexp": (_ROWS, "lse, log partition"),
        "z_loss": (_ROWS, "logsumexp square, router loss"),
        "token_logprob": (f"{_LOGITS} token=i64[M]:0..V", "log probability, logprobs, grpo, ppo"),
        "kl_batchmean": ("student=T[M,V] teacher=T[M,V]", "distillation loss, temperature"),
        "moe_gate": ("x=T[M,E]", "router, top k, topk softmax, mixture of experts, gating"),
    },
    "steps": {
        "adamw_step": (
            "param=f32[N] grad=f32[N] exp_avg=f32[N] exp_avg_sq=f32[N]:uniform lr=1e-3 "
            "weight_decay=0.01 correction1=0.5 correction2=0.3",
            "optimizer, adam",
        ),
    },
    "backward": {
        # Gradients of rows with one or two elements consist of cancellation only.
        "rmsnorm_backward": ("dout=T[M,8*N] x=T[M,8*N] w=T[8*N]", "gradient"),
        "layernorm_backward": ("dout=T[M,8*N] x=T[M,8*N] w=T[8*N] b=T[8*N]", "gradient"),
        "softmax_backward": ("dout=T[M,N] x=T[M,N]", "gradient"),
        "log_softmax_backward": ("dout=T[M,N] x=T[M,N]", "gradient"),
        "swiglu_backward": ("dout=T[M,N] gate=T[M,N] up=T[M,N]", "gradient"),
        "geglu_backward": ("dout=T[M,N] gate=T[M,N] up=T[M,N]", "gradient"),
        "swiglu_packed_backward": ("dout=T[M,N] x=T[M,2*N]", "gradient, silu and mul, one input"),
        "gelu_backward": ("dout=T[M,N] x=T[M,N]", "gradient"),
        "silu_backward": ("dout=T[M,N] x=T[M,N]", "gradient, swish"),
        "relu2_backward": ("dout=T[M,N] x=T[M,N]", "gradient, squared relu"),
        "cross_entropy_backward": (
            "dout=f32[M] x=T[M,V] target=i64[M]:0..V",
            "gradient, ignore index",
        ),
    },
}
"""By file and function: the inputs and the synonyms of the operation."""

_FAMILIES = {
    "norms": "norm",
    "gates": "gated",
    "rotary": "rope",
    "quantise": "quantise",
    "losses": "loss",
    "steps": "optimizer",
    "backward": "backward",
}


@lru_cache(maxsize=1)
def shipped() -> dict[str, Shipped]:
    """Every operation that is a function, by name, in the order of the table."""
    return {
        name: _made(file, name, inputs, words)
        for file, listed in _TABLE.items()
        for name, (inputs, words) in listed.items()
    }


def _made(file: str, name: str, inputs: str, words: str) -> Shipped:
    title, arguments, results = _described(file)[name]
    shown = ", ".join(map(_parameter, inputs.split()))
    return Shipped(
        op=Op(name, "function", _FAMILIES[file], title, title, "hard", arguments=arguments),
        file=FOLDER / f"{file}.py",
        signature=f"run({shown}) -> {results}",
        inputs=tuple(dict.fromkeys(_of_dtype(inputs, dtype) for dtype in DTYPES)),
        words=tuple(words.split(", ")),
    )


def _parameter(text: str) -> str:
    """`x=T[M,N]` as `x: Tensor[M, N]`; a fixed dtype follows it."""
    name, _, given = text.partition("=")
    dtype, bracket, rest = given.partition("[")
    if not bracket:
        return f"{name}: float"
    shape = rest.partition("]")[0].replace(",", ", ")
    return f"{name}: Tensor[{shape}]" + ("" if dtype == _ANY else f" {dtype}")


def _of_dtype(inputs: str, dtype: str) -> str:
    return inputs.replace(f"={_ANY}[", f"={dtype}[")


@lru_cache(maxsize=len(_TABLE))
def _described(file: str) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """For each public function of a file: its title, its parameters and its results."""
    tree = ast.parse((FOLDER / f"{file}.py").read_text(encoding="utf-8"))
    return {
        node.name: (
            (ast.get_docstring(node) or node.name).splitlines()[0].rstrip("."),
            tuple(argument.arg for argument in node.args.args),
            ast.unparse(node.returns) if node.returns else "Tensor",
        )
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
