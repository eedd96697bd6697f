"""kmint's eight usual operations as a user of Helion would write them, in fp32 inside.

Importing this module needs Helion. The functions become kernels with `helion.kernel`. Their
arguments are those of `kmint ops show OP`.
"""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import helion.language as hl
import torch

from referee.ops.grammar import LAYER_EPS, RMS_EPS


def rmsnorm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        h = x[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(h * h, dim=-1) + RMS_EPS)
        out[tile, :] = (h * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


def add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        h = x[tile, :].to(torch.float32) + residual[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(h * h, dim=-1) + RMS_EPS)
        out[tile, :] = (h * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


def layernorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        h = x[tile, :].to(torch.float32)
        centred = h - torch.mean(h, dim=-1)[:, None]
        scale = torch.rsqrt(torch.mean(centred * centred, dim=-1) + LAYER_EPS)
        scaled = centred * scale[:, None] * w[:].to(torch.float32) + b[:].to(torch.float32)
        out[tile, :] = scaled.to(x.dtype)
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        h = x[tile, :].to(torch.float32)
        e = torch.exp(h - torch.amax(h, dim=-1)[:, None])
        out[tile, :] = (e / torch.sum(e, dim=-1)[:, None]).to(x.dtype)
    return out


def cross_entropy(x: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    flat = x.view(-1)
    for tile in hl.tile(m):
        chosen = hl.load(flat, [tile.index * n + tgt[tile]]).to(torch.float32)
        h = x[tile, :].to(torch.float32)
        top = torch.amax(h, dim=-1)
        total = torch.sum(torch.exp(h - top[:, None]), dim=-1)
        out[tile] = (top + torch.log(total) - chosen).to(x.dtype)
    return out


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = gate.size()
    out = torch.empty_like(gate)
    for rows, columns in hl.tile([m, n]):
        g = gate[rows, columns].to(torch.float32)
        product = g * torch.sigmoid(g) * up[rows, columns].to(torch.float32)
        out[rows, columns] = product.to(gate.dtype)
    return out


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = gate.size()
    out = torch.empty_like(gate)
    for rows, columns in hl.tile([m, n]):
        g = gate[rows, columns].to(torch.float32)
        inner = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        product = 0.5 * g * (1.0 + torch.tanh(inner)) * up[rows, columns].to(torch.float32)
        out[rows, columns] = product.to(gate.dtype)
    return out


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:  # noqa: D103
    m, n = x.size()
    half = n // 2
    out = torch.empty_like(x)
    for rows, columns in hl.tile([m, half]):
        low, high = columns.index, columns.index + half
        first = x[rows, low].to(torch.float32)
        second = x[rows, high].to(torch.float32)
        out[rows, low] = (
            first * cos[rows, low].to(torch.float32) - second * sin[rows, low].to(torch.float32)
        ).to(x.dtype)
        out[rows, high] = (
            second * cos[rows, high].to(torch.float32) + first * sin[rows, high].to(torch.float32)
        ).to(x.dtype)
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(rmsnorm, layernorm, softmax, cross_entropy),
        *(swiglu, geglu, add_rmsnorm, rope),
    )
}
"""Each function by the name of its operation."""
