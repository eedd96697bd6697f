"""The float64 oracle of every operation, independent of `eager.py` so that no error is in both.

Formulas follow `Op.formula`. Softmax uses log-sum-exp, exponentials use expm1, log1p and logaddexp,
GELU is written out, LayerNorm takes two passes, and rotations use index arithmetic. The result
stays float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from referee.ops.catalogue import base_name
from referee.ops.spec import Op

Oracle = Callable[..., Tensor]


def _clip(n: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(torch.maximum(n, n.new_tensor(low)), n.new_tensor(high))


def _positive(n: Tensor) -> Tensor:
    return torch.maximum(n, n.new_tensor(0.0))


def _softplus(n: Tensor) -> Tensor:
    return torch.where(n > 20, n, torch.logaddexp(n, torch.zeros_like(n)))


def _elu(n: Tensor, alpha: float) -> Tensor:
    return torch.where(n > 0, n, alpha * torch.expm1(-_positive(-n)))


def _logistic(n: Tensor) -> Tensor:
    return torch.exp(-torch.logaddexp(-n, torch.zeros_like(n)))


ACTS: dict[str, Oracle] = {
    "gelu": lambda n: n * _logistic(2 * math.sqrt(2 / math.pi) * (n + 0.044715 * n**3)),
    "silu": lambda n: n * _logistic(n),
    "relu2": lambda n: _positive(n) ** 2,
    "tanh": lambda n: 2 * _logistic(2 * n) - 1,
    "sigmoid": _logistic,
    "relu": _positive,
    "square": lambda n: n * n,
    "abs": lambda n: torch.maximum(n, -n),
    "softsign": lambda n: n / (1 + torch.maximum(n, -n)),
    "hardsigmoid": lambda n: _clip(n / 6 + 0.5, 0.0, 1.0),
    "hardswish": lambda n: n * _clip(n / 6 + 0.5, 0.0, 1.0),
    "leaky_relu": lambda n: torch.maximum(n, 0.01 * n),
    "relu6": lambda n: _clip(n, 0.0, 6.0),
    "hardtanh": lambda n: _clip(n, -1.0, 1.0),
    "elu": lambda n: _elu(n, 1.0),
    "selu": lambda n: 1.0507009873554805 * _elu(n, 1.6732632423543772),
    "softplus": _softplus,
    "mish": lambda n: n * torch.tanh(_softplus(n)),
    "gelu_erf": lambda n: 0.5 * n * torch.erfc(-n / math.sqrt(2)),
}


def _log_softmax(z: Tensor) -> Tensor:
    # The order matters: next to the largest float32, the logarithm of a sum vanishes.
    above = z - z.amax(-1, keepdim=True)
    return above - torch.log(torch.exp(above).sum(-1, keepdim=True))


def _row_logsumexp(z: Tensor) -> Tensor:
    # Not torch.logsumexp: a row with +Inf must be NaN throughout, as exp(z - max) makes it.
    top = z.amax(-1, keepdim=True)
    return top + torch.log(torch.exp(z - top).sum(-1, keepdim=True))


def _softmax(z: Tensor) -> Tensor:
    return torch.exp(_log_softmax(z))


def _rms(h: Tensor, w: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    return h / torch.sqrt(length * length / h.shape[-1] + 1e-6) * w


def _layer(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    centred = h - h.sum(-1, keepdim=True) / h.shape[-1]
    variance = (centred * centred).sum(-1, keepdim=True) / h.shape[-1]
    return centred / torch.sqrt(variance + 1e-5) * w + b


def _rope(n: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = n.shape[-1] // 2
    a, b = n[..., :half], n[..., half:]
    out = torch.empty_like(n)
    out[..., :half] = a * cos[..., :half] - b * sin[..., :half]
    out[..., half:] = b * cos[..., half:] + a * sin[..., half:]
    return out


def _rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.view_as_complex(
        x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).contiguous()
    ) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2)


def _entropy(x: Tensor) -> Tensor:
    # In a row of masks the logarithm of a sum vanishes; the answer does not depend on the shift.
    above = x - x.amax(-1, keepdim=True)
    return _row_logsumexp(above).squeeze(-1) - (_softmax(above) * above).sum(-1)


def _cross_entropy(x: Tensor, tgt: Tensor) -> Tensor:
    return -_log_softmax(x).gather(-1, tgt[:, None]).squeeze(-1)


def _kl_div(x: Tensor, y: Tensor) -> Tensor:
    difference = _log_softmax(x) - _log_softmax(y)
    return (_softmax(x) * difference).sum(-1)


EXPLICIT: dict[str, Oracle] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmax_scale": lambda x, scale: _softmax(x * scale),
    "softcap_softmax": lambda x: _softmax(30.0 * ACTS["tanh"](x / 30.0)),
    "rmsnorm_gemma": lambda x, w: _rms(x, w) + _rms(x, torch.ones_like(w)),
    "l2norm": lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6),
    "bias_gelu": lambda x, bias: ACTS["gelu"](x + bias),
    "rope": _rope,
    "rope_interleaved": _rope_interleaved,
    "qknorm_rope": lambda x, w, cos, sin: _rope(_rms(x, w), cos, sin),
    "add_rmsnorm_rope": lambda x, residual, w, cos, sin: _rope(_rms(x + residual, w), cos, sin),
    "dequant_int8": lambda q, scale: q * scale,
    "cross_entropy": _cross_entropy,
    "cumsum": lambda x: torch.cumsum(x, dim=-1),
    "entropy": _entropy,
    "kl_div": _kl_div,
    "swiglu": lambda gate, up: ACTS["silu"](gate) * up,
    "geglu": lambda gate, up: ACTS["gelu"](gate) * up,
    "reglu": lambda gate, up: _positive(gate) * up,
    "glu": lambda gate, up: _logistic(gate) * up,
}


def _normed(op: Op, x: Tensor, *rest: Tensor) -> Tensor:
    h, parameters = (x + rest[0], rest[1:]) if op.residual else (x, rest)
    n = _rms(h, *parameters) if op.norm == "rms" else _layer(h, *parameters)
    for act in op.acts:
        n = ACTS[act](n)
    return n


def oracle(op: Op) -> Oracle:
    """The float64 function of a catalogue or remix operation.

    Inputs have any dtype; integers of a `tgt` argument stay integers.
    """
    name = base_name(op)
    if name in EXPLICIT:
        body = EXPLICIT[name]
    elif op.kind == "unary" and name in ACTS:
        body = ACTS[name]
    elif op.norm is not None:

        def body(*inputs: Tensor) -> Tensor:
            return _normed(op, *inputs)
    else:
        raise LookupError(f"{op.name} has no catalogue oracle")

    def in_float64(*inputs: Tensor) -> Tensor:
        return body(
            *(tensor if tensor.dtype == torch.int64 else tensor.double() for tensor in inputs)
        )

    return in_float64
