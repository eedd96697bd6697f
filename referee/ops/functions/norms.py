"""Normalisations with a residual, without parameters, over groups, and with a modulation."""

import torch
import torch.nn.functional as F
from torch import Tensor

RMS_EPS = 1e-6
LAYER_EPS = 1e-5


def _rms(h: Tensor) -> Tensor:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + RMS_EPS)


def add_rmsnorm_both(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """RMSNorm of x + residual, and the sum itself, which the next layer needs."""
    h = x + residual
    return (_rms(h.float()) * w.float()).to(x.dtype), h


def add_layernorm_both(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """LayerNorm of x + residual, and the sum itself, which the next layer needs."""
    h = x + residual
    return F.layer_norm(h, (h.shape[-1],), w, b, LAYER_EPS), h


def rmsnorm_plain(x: Tensor) -> Tensor:
    """RMSNorm without a weight."""
    return _rms(x.float()).to(x.dtype)


def layernorm_no_bias(x: Tensor, w: Tensor) -> Tensor:
    """LayerNorm with a weight and no bias."""
    return F.layer_norm(x, (x.shape[-1],), w, None, LAYER_EPS)


def layernorm_plain(x: Tensor) -> Tensor:
    """LayerNorm without weight and bias."""
    return F.layer_norm(x, (x.shape[-1],), None, None, LAYER_EPS)


def groupnorm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """GroupNorm of 32 groups of channels, then SiLU."""
    return F.silu(F.group_norm(x, 32, w, b, LAYER_EPS))


def adaln_modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """LayerNorm without parameters, then x * (1 + scale) + shift, one scale and shift an image."""
    n = F.layer_norm(x.float(), (x.shape[-1],), None, None, RMS_EPS)
    return (n * (1 + scale.float().unsqueeze(1)) + shift.float().unsqueeze(1)).to(x.dtype)


def adaln_gate(x: Tensor, branch: Tensor, gate: Tensor) -> Tensor:
    """The end of such a block: x + gate * branch, one gate an image."""
    return (x.float() + gate.float().unsqueeze(1) * branch.float()).to(x.dtype)
