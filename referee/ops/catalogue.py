"""The catalogue: every operation with a trusted reference, under its public name. Torch-free.

It has 20 explicit operations, 5 standalone ones and 76 chains; `layernorm_gelu` is both explicit
and a chain. The probes are rmsnorm_wide, cumsum, entropy, kl_div and 14 `_short` variants. A
`_short` variant keeps the contract of its base and is timed on many short rows. `get` makes remixes
(two stacked activations) on demand; they are not listed.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import lru_cache

from referee.ops.grammar import (
    ACTIVATIONS,
    LAYER_EPS,
    RMS_EPS,
    Norm,
    chain,
    norm_formula,
    norm_kind,
    norm_title,
    parse_remix,
)
from referee.ops.shipped import shipped
from referee.ops.spec import Op

L2_EPS = 1e-6
SOFTCAP = 30.0
SHORT_SUFFIX = "_short"
NEAREST = 3

_SOFTMAX = "out = exp(z - max(z)) / sum(exp(z - max(z))), max and sum over the row"
_ROTATE = "out = n*cos + rot(n)*sin with rot(n) = concat(-n[D/2:], n[:D/2])"

SHORT_BASES = (
    "rmsnorm",
    "softmax",
    "swiglu",
    "add_rmsnorm",
    "layernorm",
    "add_layernorm",
    "geglu",
    "layernorm_gelu",
    "rmsnorm_gelu",
    "rmsnorm_silu",
    "layernorm_silu",
    "add_rmsnorm_gelu",
    "add_rmsnorm_silu",
    "add_layernorm_sigmoid",
)


class UnknownOp(LookupError):
    """No operation has this name. `nearest` has the closest names of the catalogue, best first."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        self.name = name
        self.nearest = nearest
        hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(f"unknown operation {name!r}{hint}")


def _op(
    name: str,
    kind: str,
    family: str,
    title: str,
    formula: str = "",
    *,
    eps: float | None = None,
    cast: str = "x.dtype",
) -> Op:
    text = f"{formula or _formulas()[name]}; all in fp32, cast to {cast}"
    return Op(name, kind, family, title, text, "familiar", eps=eps)


def _plain_norm(norm: Norm, residual: bool) -> Op:
    name = ("add_" if residual else "") + ("rmsnorm" if norm == "rms" else "layernorm")
    eps = RMS_EPS if norm == "rms" else LAYER_EPS
    kind, title = norm_kind(norm, residual), norm_title(norm, residual)
    base = _op(name, kind, "norm", title, norm_formula(norm, residual) + "; out = n", eps=eps)
    return replace(base, norm=norm, residual=residual)


def _activation(name: str) -> Op:
    act = ACTIVATIONS[name]
    return _op(name, "unary", "activation", act.title, f"n = x; out = {act.formula}")


def _gated(name: str, title: str, gate: str) -> Op:
    return _op(name, "gate_up", "gated", title, f"n = gate; out = {gate} * up", cast="gate.dtype")


def _formulas() -> dict[str, str]:
    """The formulas of operations that are no chain, activation or gated unit."""
    rms, add_rms = norm_formula("rms", False), norm_formula("rms", True)
    row = "max and sum over the row"
    return {
        "softmax": "z = x; " + _SOFTMAX,
        "rope": "n = x; " + _ROTATE,
        "qknorm_rope": f"{rms}; {_ROTATE}",
        "bias_gelu": f"n = x + bias; out = {ACTIVATIONS['gelu'].formula}",
        "l2norm": f"out = x / sqrt(sum(x^2 over the row) + {L2_EPS:g})",
        "log_softmax": f"out = (x - max(x)) - log(sum(exp(x - max(x)))), {row}",
        "softmax_scale": "z = x*scale[0], scale[0] > 0; " + _SOFTMAX,
        "add_rmsnorm_rope": f"{add_rms}; {_ROTATE}",
        "dequant_int8": "out = q * scale, one scale a row",
        "softcap_softmax": f"z = {SOFTCAP:g}*tanh(x/{SOFTCAP:g}); {_SOFTMAX}",
        "rmsnorm_gemma": f"out = x / sqrt(mean(x^2 over the row) + {RMS_EPS:g}) * (1 + w)",
        "rope_interleaved": (
            "out[2i] = x[2i]*cos[i] - x[2i+1]*sin[i]; out[2i+1] = x[2i]*sin[i] + x[2i+1]*cos[i]"
        ),
        "cross_entropy": "out = log(sum(exp(x - max(x)))) + max(x) - x[tgt], one value a row",
        "cumsum": "out[j] = sum(x[0..j]) along the row",
        "entropy": (
            "p = softmax(x) over the row; out = -sum(p*log(p)) = "
            "log(sum(exp(x - m))) - sum(p*(x - m)), m = max(x); one value a row"
        ),
        "kl_div": (
            "p = softmax(x), q = softmax(y) over the row; "
            "out = sum(p*(log(p) - log(q))), one value a row"
        ),
    }


def _explicit() -> tuple[Op, ...]:
    gelu, silu, relu = (ACTIVATIONS[act].formula for act in ("gelu", "silu", "relu"))
    qknorm, add_rms = "RMSNorm -> rotary embedding", "residual + RMSNorm -> rotary embedding"
    return (
        _plain_norm("rms", False),
        _op("softmax", "unary", "softmax", "softmax"),
        _gated("swiglu", "SwiGLU", silu),
        _plain_norm("rms", True),
        _op("rope", "rope", "rope", "rotary embedding (rotate-half)"),
        _plain_norm("layer", False),
        _plain_norm("layer", True),
        _gated("geglu", "GEGLU (tanh form)", gelu),
        _op("qknorm_rope", "norm_rope", "rope", qknorm, eps=RMS_EPS),
        _activation("gelu"),
        _activation("silu"),
        _activation("relu2"),
        _op("bias_gelu", "bias", "activation", "bias + GELU (tanh form)"),
        _gated("reglu", "ReGLU", relu),
        _op("l2norm", "unary", "norm", "L2 normalisation", eps=L2_EPS),
        _op("log_softmax", "unary", "softmax", "log-softmax"),
        _op("softmax_scale", "scale", "softmax", "scaled softmax"),
        chain("layer", False, ("gelu",)),
        _op("add_rmsnorm_rope", "add_norm_rope", "rope", add_rms, eps=RMS_EPS),
        _op("dequant_int8", "dequant", "dequant", "int8 dequantisation", cast="float16"),
    )


def _standalone() -> tuple[Op, ...]:
    interleaved = "rotary embedding (interleaved pairs)"
    return (
        _op("softcap_softmax", "unary", "softmax", "soft-capped softmax"),
        _op("rmsnorm_gemma", "rms", "norm", "RMSNorm with weight 1 + w", eps=RMS_EPS),
        _gated("glu", "GLU (sigmoid gate)", "sigmoid(n)"),
        _op("rope_interleaved", "rope_interleaved", "rope", interleaved),
        _op("cross_entropy", "target", "loss", "cross entropy a row"),
    )


def _probes() -> tuple[Op, ...]:
    title = "RMSNorm of few very long rows"
    wide = replace(_plain_norm("rms", False), name="rmsnorm_wide", title=title, regime="wide")
    probes = (
        wide,
        _op("cumsum", "unary", "scan", "cumulative sum"),
        _op("entropy", "row_reduce", "loss", "entropy of softmax a row"),
        _op("kl_div", "pair_reduce", "loss", "KL divergence of two rows of logits"),
    )
    return tuple(replace(op, difficulty="hard") for op in probes)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Op]:
    ops = {op.name: op for op in (*_explicit(), *_standalone())}
    for norm in ("rms", "layer"):
        for residual in (False, True):
            for act in ACTIVATIONS:
                op = chain(norm, residual, (act,))
                ops.setdefault(op.name, op)
    ops.update((op.name, op) for op in _probes())
    for base in SHORT_BASES:
        name, title = base + SHORT_SUFFIX, ops[base].title + ", short rows"
        ops[name] = replace(ops[base], name=name, title=title, regime="short")
    return ops


def catalogue() -> tuple[Op, ...]:
    """Every listed operation with a formula, the explicit ones first."""
    return tuple(_by_name().values())


def functions() -> tuple[Op, ...]:
    """Every listed operation that is a function: several results, or other shapes and dtypes."""
    return tuple(one.op for one in shipped().values())


def listed() -> tuple[Op, ...]:
    """Every operation that has its own name."""
    return (*catalogue(), *functions())


def _nearest(name: str) -> tuple[str, ...]:
    names = tuple(op.name for op in listed())
    close = difflib.get_close_matches(name, names, n=NEAREST, cutoff=0.55)
    containing = [other for other in names if name and name in other and other not in close]
    return tuple((close + containing)[:NEAREST])


def get(name: str) -> Op:
    """The listed operation or remix of that name. Raises UnknownOp with the nearest names."""
    if (op := _by_name().get(name)) is not None:
        return op
    if (function := shipped().get(name)) is not None:
        return function.op
    if (op := parse_remix(name)) is not None:
        return op
    raise UnknownOp(name, _nearest(name))


def base_name(op: Op) -> str:
    """The name under which the formula is known, without `_short` or `_wide`."""
    return op.name.removesuffix(SHORT_SUFFIX if op.regime == "short" else "_wide")
