"""Rotary-embedding settings in both config generations, and what GGUF wants to hear of them.

transformers 4 writes `rope_theta` and `rope_scaling`; transformers 5 writes `rope_parameters`. Scaling formulas:
YaRN, https://arxiv.org/abs/2309.00071; the llama3 blend, https://ai.meta.com/blog/meta-llama-3-1/ (reference code in
transformers' `modeling_rope_utils`). Anything else is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convert.errors import ArchitectureError
from convert.safetensors_file import Floats


@dataclass(frozen=True)
class Rope:
    """`metadata` keys come without the architecture prefix; `divisors` is the `rope_freqs.weight` tensor, if any."""

    theta: float
    metadata: dict[str, Any] = field(default_factory=dict)
    divisors: Floats | None = None


def read_rope(config: dict[str, Any], head_dim: int) -> Rope:
    """The rope of a config. Raises ArchitectureError for a scaling that llama.cpp or kmint does not know."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(settings, dict):
        raise ArchitectureError("rope settings in config.json are not an object")
    theta = settings.get("rope_theta", config.get("rope_theta", 10000.0))
    if not isinstance(theta, int | float) or not 0 < theta < math.inf:
        raise ArchitectureError(f"rope_theta {theta!r} is not a positive number")
    kind = settings.get("rope_type", settings.get("type", "default"))
    base = float(theta)
    if kind == "default":
        return Rope(base)
    if kind == "linear":
        return Rope(base, {"rope.scaling.type": "linear", "rope.scaling.factor": _number(settings, "factor")})
    if kind == "yarn":
        return Rope(base, _yarn(settings))
    if kind == "llama3":
        return Rope(base, {}, _llama3_divisors(settings, base, head_dim))
    raise ArchitectureError(f"rope type {str(kind)[:40]!r} is not supported", "supported: default, linear, yarn, llama3")


def _number(settings: dict[str, Any], key: str) -> float:
    value = settings.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ArchitectureError(f"rope setting {key!r} is missing or not a positive number")
    return float(value)


def _yarn(settings: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": _number(settings, "factor"),
        "rope.scaling.original_context_length": int(_number(settings, "original_max_position_embeddings")),
    }
    names = {
        "extrapolation_factor": "rope.scaling.yarn_ext_factor",
        "attention_factor": "rope.scaling.yarn_attn_factor",
        "beta_fast": "rope.scaling.yarn_beta_fast",
        "beta_slow": "rope.scaling.yarn_beta_slow",
    }
    for ours, key in names.items():
        if settings.get(ours) is not None:
            metadata[key] = _number(settings, ours)
    return metadata


def _llama3_divisors(settings: dict[str, Any], theta: float, head_dim: int) -> Floats:
    factor, low, high = (_number(settings, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = _number(settings, "original_max_position_embeddings")
    if low >= high:
        raise ArchitectureError("llama3 rope: low_freq_factor must be below high_freq_factor")
    frequencies = 1.0 / theta ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    wavelengths = 2 * math.pi / frequencies
    smooth = (context / wavelengths - low) / (high - low)
    blended = 1.0 / ((1.0 - smooth) / factor + smooth)
    divisors = np.where(wavelengths < context / high, 1.0, np.where(wavelengths > context / low, factor, blended))
    return divisors.astype(np.float32)
