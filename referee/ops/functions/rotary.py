"""Rotary embeddings of queries and keys with tables for each position."""

import torch
from torch import Tensor

EPS = 1e-6


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + _rotate_half(x) * sin


def _rms(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * w.float()


def rope_qk(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embedding of q and k of all heads, with tables for each position."""
    c, s = cos.float(), sin.float()
    return _turned(q.float(), c, s).to(q.dtype), _turned(k.float(), c, s).to(k.dtype)


def rope_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of all heads, with tables for each position."""
    return _turned(x.float(), cos.float(), sin.float()).to(x.dtype)


def rope_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first half of every head; the other half stays."""
    head, rest = x.chunk(2, dim=-1)
    turned = _turned(head.float(), cos.float(), sin.float())
    return torch.cat((turned.to(x.dtype), rest), dim=-1)


def qknorm_rope_heads(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RMSNorm of every head, then its rotary embedding, with tables for each position."""
    return _turned(_rms(x.float(), w), cos.float(), sin.float()).to(x.dtype)


def qknorm_rope_qk(
    q: Tensor, k: Tensor, qw: Tensor, kw: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """RMSNorm of every head of q and of k, then their rotary embedding."""
    c, s = cos.float(), sin.float()
    turned_q = _turned(_rms(q.float(), qw), c, s).to(q.dtype)
    return turned_q, _turned(_rms(k.float(), kw), c, s).to(k.dtype)
