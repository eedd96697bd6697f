"""The trusted references as an engineer would write them in PyTorch: fp32 inside, one cast to the
input's dtype.

They are also the eager baseline and the source of the compiled baselines, so every function traces
without a graph break. PyTorch's single calls that compute in fp32 for half types (softmax,
log_softmax, layer_norm, cross_entropy) are used, because they are the fairer baseline.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from referee.ops.catalogue import L2_EPS, SOFTCAP, base_name
from referee.ops.grammar import LAYER_EPS, RMS_EPS
from referee.ops.spec import Op

Reference = Callable[..., Tensor]

ACTS: dict[str, Reference] = {
    "gelu": lambda n: F.gelu(n, approximate="tanh"),
    "silu": F.silu,
    "relu2": lambda n: torch.square(torch.relu(n)),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "square": torch.square,
    "abs": torch.abs,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": lambda n: F.leaky_relu(n, 0.01),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "mish": F.mish,
    "gelu_erf": F.gelu,
}
GATES = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid"}


def _rms(h: Tensor, w: Tensor) -> Tensor:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + RMS_EPS) * w


def _rotate_half(n: Tensor) -> Tensor:
    first, second = n.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _rotary(n: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return n * cos.float() + _rotate_half(n) * sin.float()


def _rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x.float().reshape(*x.shape[:-1], x.shape[-1] // 2, 2).unbind(-1)
    c, s = cos.float(), sin.float()
    return torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2).to(x.dtype)


def _entropy(x: Tensor) -> Tensor:
    logp = torch.log_softmax(x.float(), -1)
    return -(logp.exp() * logp).sum(-1).to(x.dtype)


def _kl_div(x: Tensor, y: Tensor) -> Tensor:
    logp, logq = torch.log_softmax(x.float(), -1), torch.log_softmax(y.float(), -1)
    return (logp.exp() * (logp - logq)).sum(-1).to(x.dtype)


EXPLICIT: dict[str, Reference] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "softmax_scale": lambda x, scale: torch.softmax(x.float() * scale.float(), -1).to(x.dtype),
    "softcap_softmax": lambda x: torch.softmax(SOFTCAP * torch.tanh(x.float() / SOFTCAP), -1).to(
        x.dtype
    ),
    "layernorm": lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b, LAYER_EPS),
    "rmsnorm_gemma": lambda x, w: _rms(x.float(), 1.0 + w.float()).to(x.dtype),
    "l2norm": lambda x: (
        x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + L2_EPS)
    ).to(x.dtype),
    "bias_gelu": lambda x, bias: F.gelu(x.float() + bias.float(), approximate="tanh").to(x.dtype),
    "rope": lambda x, cos, sin: _rotary(x.float(), cos, sin).to(x.dtype),
    "rope_interleaved": _rope_interleaved,
    "qknorm_rope": lambda x, w, cos, sin: _rotary(_rms(x.float(), w.float()), cos, sin).to(x.dtype),
    "add_rmsnorm_rope": lambda x, residual, w, cos, sin: _rotary(
        _rms(x.float() + residual.float(), w.float()), cos, sin
    ).to(x.dtype),
    "dequant_int8": lambda q, scale: (q.float() * scale.float()).to(scale.dtype),
    "cross_entropy": lambda x, tgt: F.cross_entropy(x, tgt, reduction="none"),
    "cumsum": lambda x: torch.cumsum(x.float(), -1).to(x.dtype),
    "entropy": _entropy,
    "kl_div": _kl_div,
}


def _composed(op: Op) -> Reference:
    acts = [ACTS[act] for act in op.acts]

    def reference(x: Tensor, *rest: Tensor) -> Tensor:
        h = x.float()
        if op.residual:
            h = h + rest[0].float()
        w = rest[1 if op.residual else 0].float()
        n = (
            _rms(h, w)
            if op.norm == "rms"
            else F.layer_norm(h, (h.shape[-1],), w, rest[-1].float(), LAYER_EPS)
        )
        for act in acts:
            n = act(n)
        return n.to(x.dtype)

    return reference


def _gated(act: Reference) -> Reference:
    return lambda gate, up: (act(gate.float()) * up.float()).to(gate.dtype)


def _elementwise(act: Reference) -> Reference:
    return lambda x: act(x.float()).to(x.dtype)


def eager(op: Op) -> Reference:
    """The reference of a catalogue or remix operation.

    Raises LookupError for a user's operation, whose task has its own reference.
    """
    name = base_name(op)
    if name in EXPLICIT:
        return EXPLICIT[name]
    if name in GATES:
        return _gated(ACTS[GATES[name]])
    if op.kind == "unary" and name in ACTS:
        return _elementwise(ACTS[name])
    if op.norm is not None:
        return _composed(op)
    raise LookupError(f"{op.name} has no catalogue reference")
