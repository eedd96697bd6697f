"""The PyTorch reference of an operation as readable source text.

A saved file computes it on the CPU and is tested against it. It has the formulas of the referee's
eager references (`referee/ops/eager.py`), without tables; `tests/save` checks that both give the
same bits.
"""

from __future__ import annotations

from referee.ops import Op, signature
from referee.ops.catalogue import L2_EPS, SOFTCAP, base_name
from referee.ops.grammar import LAYER_EPS, RMS_EPS

ACTIVATIONS = {
    "gelu": 'F.gelu({n}, approximate="tanh")',
    "silu": "F.silu({n})",
    "relu2": "torch.square(torch.relu({n}))",
    "tanh": "torch.tanh({n})",
    "sigmoid": "torch.sigmoid({n})",
    "relu": "torch.relu({n})",
    "square": "torch.square({n})",
    "abs": "torch.abs({n})",
    "softsign": "F.softsign({n})",
    "hardsigmoid": "F.hardsigmoid({n})",
    "hardswish": "F.hardswish({n})",
    "leaky_relu": "F.leaky_relu({n}, 0.01)",
    "relu6": "F.relu6({n})",
    "hardtanh": "F.hardtanh({n})",
    "elu": "F.elu({n})",
    "selu": "F.selu({n})",
    "softplus": "F.softplus({n})",
    "mish": "F.mish({n})",
    "gelu_erf": "F.gelu({n})",
}
GATES = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid"}

_RMS = f"h * torch.rsqrt(h.square().mean(-1, keepdim=True) + {RMS_EPS})"
_LAYER = f"F.layer_norm(h, (h.shape[-1],), w.float(), b.float(), {LAYER_EPS})"
_ROTATE = (
    "first, second = n.chunk(2, dim=-1)",
    "rotated = torch.cat((-second, first), dim=-1)",
    "return (n * cos.float() + rotated * sin.float()).to(x.dtype)",
)
_X, _X_RESIDUAL = "h = x.float()", "h = x.float() + residual.float()"

EXPLICIT: dict[str, tuple[str, ...]] = {
    "softmax": ("return torch.softmax(x, -1)",),
    "log_softmax": ("return torch.log_softmax(x, -1)",),
    "softmax_scale": ("return torch.softmax(x.float() * scale.float(), -1).to(x.dtype)",),
    "softcap_softmax": (
        f"return torch.softmax({SOFTCAP} * torch.tanh(x.float() / {SOFTCAP}), -1).to(x.dtype)",
    ),
    "layernorm": (f"return F.layer_norm(x, (x.shape[-1],), w, b, {LAYER_EPS})",),
    "rmsnorm_gemma": (_X, f"return ({_RMS} * (1.0 + w.float())).to(x.dtype)"),
    "l2norm": (
        _X,
        f"return (h * torch.rsqrt(h.square().sum(-1, keepdim=True) + {L2_EPS})).to(x.dtype)",
    ),
    "bias_gelu": ('return F.gelu(x.float() + bias.float(), approximate="tanh").to(x.dtype)',),
    "rope": ("n = x.float()", *_ROTATE),
    "rope_interleaved": (
        "even, odd = x.float().reshape(*x.shape[:-1], x.shape[-1] // 2, 2).unbind(-1)",
        "c, s = cos.float(), sin.float()",
        "return torch.stack((even * c - odd * s, even * s + odd * c), "
        "dim=-1).flatten(-2).to(x.dtype)",
    ),
    "qknorm_rope": (_X, f"n = {_RMS} * w.float()", *_ROTATE),
    "add_rmsnorm_rope": (_X_RESIDUAL, f"n = {_RMS} * w.float()", *_ROTATE),
    "dequant_int8": ("return (q.float() * scale.float()).to(scale.dtype)",),
    "cross_entropy": (
        "return -torch.log_softmax(x, -1).gather(-1, tgt.unsqueeze(-1)).squeeze(-1)",
    ),
    "cumsum": ("return torch.cumsum(x.float(), -1).to(x.dtype)",),
    "entropy": (
        "logp = torch.log_softmax(x.float(), -1)",
        "return -(logp.exp() * logp).sum(-1).to(x.dtype)",
    ),
    "kl_div": (
        "logp, logq = torch.log_softmax(x.float(), -1), torch.log_softmax(y.float(), -1)",
        "return (logp.exp() * (logp - logq)).sum(-1).to(x.dtype)",
    ),
}


def _body(op: Op) -> tuple[str, ...]:
    name = base_name(op)
    if name in EXPLICIT:
        return EXPLICIT[name]
    if name in GATES:
        return (
            f"return ({ACTIVATIONS[GATES[name]].format(n='gate.float()')} * "
            "up.float()).to(gate.dtype)",
        )
    if op.norm is None:
        return (f"return {ACTIVATIONS[name].format(n='x.float()')}.to(x.dtype)",)
    norm = f"{_RMS} * w.float()" if op.norm == "rms" else _LAYER
    return (
        _X_RESIDUAL if op.residual else _X,
        f"n = {norm}",
        *(f"n = {ACTIVATIONS[act].format(n='n')}" for act in op.acts),
        "return n.to(x.dtype)",
    )


def reference_function(op: Op) -> str:
    """`def reference(...)` of a catalogue or remix op; it needs `torch`, `torch.nn.functional as F`
    and `Tensor`.
    """
    arguments = ", ".join(f"{name}: Tensor" for name in signature(op))
    lines = "\n".join(f"    {line}" for line in _body(op))
    return (
        f'def reference({arguments}) -> Tensor:\n    """The same in plain PyTorch, as the '
        f'referee computes it."""\n{lines}\n'
    )
