"""The forms in which kernels compute operations that PyTorch has in one piece.

Triton's language has no tanh, expm1 or log1p. Kernels compute them from a rounded number near one,
and the difference keeps that error: tanh(x) is 2 sigmoid(2x) - 1. A softmax may be
exp(x - logsumexp(x)). Rounding the final result alone does not show this error
(`random_rounding.py`).

Sources: PyTorch's documentation of each operation, and its decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions


def _sigmoid(x: Tensor) -> Tensor:
    return torch.reciprocal(1.0 + torch.exp(-x))


def _silu(x: Tensor) -> Tensor:
    return x * _sigmoid(x)


def _tanh(x: Tensor) -> Tensor:
    return 2.0 * _sigmoid(2.0 * x) - 1.0


def _expm1(x: Tensor) -> Tensor:
    return torch.exp(x) - 1.0


def _log1p(x: Tensor) -> Tensor:
    return torch.log(1.0 + x)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    below = torch.exp(x.clamp(max=0.0) * input_scale) - 1.0
    return scale * (x.clamp(min=0.0) + alpha * below)


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = x * beta
    return (scaled.clamp(min=0.0) + torch.log(1.0 + torch.exp(-scaled.abs()))) / beta


def _mish(x: Tensor) -> Tensor:
    return x * _tanh(_softplus(x))


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    exponential = torch.exp(-x.abs())
    return x.clamp(max=0.0) - torch.log(1.0 + exponential), exponential


def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x, y) + torch.log(1.0 + torch.exp(-(x - y).abs()))


def _log_softmax(logits: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return logits - torch.logsumexp(logits, dim, keepdim=True)


def _softmax(logits: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.exp(_log_softmax(logits, dim, half_to_float))


def _remainder(x: Tensor, divisor: Tensor | float) -> Tensor:
    return x - torch.floor(x / divisor) * divisor


def _fmod(x: Tensor, divisor: Tensor | float) -> Tensor:
    return x - torch.trunc(x / divisor) * divisor


def _frac(x: Tensor) -> Tensor:
    return x - torch.trunc(x)


_DECOMPOSED = "gelu gelu_backward tanh_backward mish_backward _softmax_backward_data _log_softmax_backward_data"

USUAL_FORMS: Mapping[str, Callable[..., Any]] = {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "tanh": _tanh,
    "expm1": _expm1,
    "log1p": _log1p,
    "elu": _elu,
    "celu": _celu,
    "softplus": _softplus,
    "mish": _mish,
    "log_sigmoid_forward": _log_sigmoid,
    "logaddexp": _logaddexp,
    "_log_softmax": _log_softmax,
    "_softmax": _softmax,
    "remainder": _remainder,
    "fmod": _fmod,
    "frac": _frac,
    **{
        name: get_decompositions([found])[found]
        for name in _DECOMPOSED.split()
        if (found := getattr(torch.ops.aten, name).default)
    },
}
"""The usual form of each ATen operation, by its name."""
