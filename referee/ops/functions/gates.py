"""Gated units whose gate and value lie in one tensor, and dropout with a residual."""

import torch.nn.functional as F
from torch import Tensor


def swiglu_packed(x: Tensor) -> Tensor:
    """SwiGLU of one tensor: the gate is its first half, the value its second."""
    gate, up = x.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(x.dtype)


def geglu_packed(x: Tensor) -> Tensor:
    """GEGLU (tanh form) of one tensor: the gate is its first half, the value its second."""
    gate, up = x.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * up).to(x.dtype)


def glu_packed(x: Tensor) -> Tensor:
    """GLU as in `F.glu`: the value is the first half, the sigmoid gate the second."""
    return F.glu(x, dim=-1)


def bias_swiglu_packed(x: Tensor, bias: Tensor) -> Tensor:
    """SwiGLU of one tensor plus a bias."""
    gate, up = (x.float() + bias.float()).chunk(2, dim=-1)
    return (F.silu(gate) * up).to(x.dtype)


def dropout_add(x: Tensor, keep: Tensor, residual: Tensor, p: float = 0.1) -> Tensor:
    """Dropout with a given mask of what is kept, then the residual."""
    dropped = keep * x.float() / (1.0 - p)
    return (dropped + residual.float()).to(x.dtype)
