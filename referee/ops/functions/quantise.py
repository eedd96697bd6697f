"""Dynamic quantisation: values of eight bits and a float32 scale for each row or block."""

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 128
INT8_MAX, FP8_MAX = 127.0, 448.0
LEAST_SCALE = 1e-8
EPS = 1e-6


def _int8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax(-1, keepdim=True) / INT8_MAX).clamp(min=LEAST_SCALE)
    return torch.round(x / scale).clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scale


def _fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax(-1, keepdim=True) / FP8_MAX).clamp(min=LEAST_SCALE)
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def _blocks(x: Tensor) -> Tensor:
    return x.float().reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)


def _rmsnorm(x: Tensor, w: Tensor) -> Tensor:
    h = x.float()
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * w.float()


def quantize_int8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values and one scale a row."""
    return _int8(x.float())


def quantize_int8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values and one scale for every 128 elements of a row."""
    q, scale = _int8(_blocks(x))
    return q.reshape(x.shape), scale.squeeze(-1)


def quantize_fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 (e4m3) values and one scale a row."""
    return _fp8(x.float())


def quantize_fp8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 (e4m3) values and one scale for every 128 elements of a row."""
    q, scale = _fp8(_blocks(x))
    return q.reshape(x.shape), scale.squeeze(-1)


def rmsnorm_int8(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """RMSNorm, then int8 values and one scale a row."""
    return _int8(_rmsnorm(x, w))


def rmsnorm_fp8(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """RMSNorm, then fp8 (e4m3) values and one scale a row."""
    return _fp8(_rmsnorm(x, w))


def swiglu_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """SwiGLU of one tensor, then int8 values and one scale a row."""
    gate, up = x.float().chunk(2, dim=-1)
    return _int8(F.silu(gate) * up)


def swiglu_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """SwiGLU of one tensor, then fp8 (e4m3) values and one scale a row."""
    gate, up = x.float().chunk(2, dim=-1)
    return _fp8(F.silu(gate) * up)
