"""Gradients, by autograd: each function takes the gradient of a result first."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vjp

RMS_EPS = 1e-6
LAYER_EPS = 1e-5
IGNORED = -100


def _gradients(
    function: Callable[..., Tensor], dout: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    pull = vjp(function, *(one.float() for one in inputs))[1]
    found = pull(dout.float())
    return tuple(one.to(given.dtype) for one, given in zip(found, inputs, strict=True))


def _rmsnorm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_EPS) * w


def _layernorm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b, LAYER_EPS)


def rmsnorm_backward(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of RMSNorm for its input and weight."""
    dx, dw = _gradients(_rmsnorm, dout, x, w)
    return dx, dw


def layernorm_backward(
    dout: Tensor, x: Tensor, w: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of LayerNorm for its input, weight and bias."""
    dx, dw, db = _gradients(_layernorm, dout, x, w, b)
    return dx, dw, db


def softmax_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of softmax."""
    return _gradients(lambda z: torch.softmax(z, dim=-1), dout, x)[0]


def log_softmax_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of log-softmax."""
    return _gradients(lambda z: torch.log_softmax(z, dim=-1), dout, x)[0]


def swiglu_backward(dout: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of SwiGLU for gate and value."""
    dgate, dup = _gradients(lambda g, u: F.silu(g) * u, dout, gate, up)
    return dgate, dup


def geglu_backward(dout: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of GEGLU (tanh form) for gate and value."""
    dgate, dup = _gradients(lambda g, u: F.gelu(g, approximate="tanh") * u, dout, gate, up)
    return dgate, dup


def swiglu_packed_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of SwiGLU of one tensor."""

    def packed(z: Tensor) -> Tensor:
        gate, up = z.chunk(2, dim=-1)
        return F.silu(gate) * up

    return _gradients(packed, dout, x)[0]


def gelu_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of GELU (tanh form)."""
    return _gradients(lambda z: F.gelu(z, approximate="tanh"), dout, x)[0]


def silu_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of SiLU."""
    return _gradients(F.silu, dout, x)[0]


def relu2_backward(dout: Tensor, x: Tensor) -> Tensor:
    """The gradient of squared ReLU."""
    return _gradients(lambda z: torch.relu(z).square(), dout, x)[0]


def cross_entropy_backward(dout: Tensor, x: Tensor, target: Tensor) -> Tensor:
    """The gradient of cross entropy a row for the logits; a row of the target -100 has none."""

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, target, ignore_index=IGNORED, reduction="none")

    return _gradients(loss, dout, x)[0]
