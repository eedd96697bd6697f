"""Rotary-embedding settings of both config generations, as GGUF keys.

transformers 4 writes `rope_theta` and `rope_scaling`; transformers 5 writes `rope_parameters`. A
setting outside the lists may change the result, so it is refused by name. Source of the scaling
formulas: YaRN, https://arxiv.org/abs/2309.00071; the llama3 blend,
https://ai.meta.com/blog/meta-llama-3-1/ (reference code in transformers' `modeling_rope_utils`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convert.config_values import number
from convert.errors import ArchitectureError
from convert.safetensors_file import Floats

# The architectures check the last three themselves.
_ANYWHERE = frozenset(
    (
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "mrope_section",
        "mrope_interleaved",
    )
)
# The settings that transformers reads for each type of scaling. Others may be present for another
# architecture's layers.
_SETTINGS: dict[str, frozenset[str]] = {
    "default": frozenset(("original_max_position_embeddings",)),
    "linear": frozenset(("factor", "original_max_position_embeddings")),
    "yarn": frozenset(
        (
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        )
    ),
    "llama3": frozenset(
        ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    ),
}
_BETAS = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}


@dataclass(frozen=True)
class Rope:
    """`metadata` keys lack the architecture prefix; `divisors` is `rope_freqs.weight`."""

    theta: float
    metadata: dict[str, Any] = field(default_factory=dict)
    divisors: Floats | None = None


def read_rope(config: dict[str, Any], head_dim: int) -> Rope:
    """The rope of a config. Raises ArchitectureError for an unknown scaling or setting."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(settings, dict):
        raise ArchitectureError("rope settings in config.json are not an object")
    given = {name: value for name, value in {**config, **settings}.items() if value is not None}
    base, context = number(given, "rope_theta", 10000.0), config.get("max_position_embeddings")
    kind = settings.get("rope_type", settings.get("type", "default"))
    if not isinstance(kind, str) or kind not in _SETTINGS:
        raise ArchitectureError(
            f"rope type {str(kind)[:40]!r} is not supported", f"supported: {', '.join(_SETTINGS)}"
        )
    unknown = sorted(
        key
        for key, value in settings.items()
        if value is not None and key not in _ANYWHERE | _SETTINGS[kind]
    )
    if unknown:
        raise ArchitectureError(
            f"rope setting {unknown[0][:40]!r} is not known for rope type {kind!r}, and may "
            "change the result",
            "please report this checkpoint; it cannot be converted faithfully",
        )
    if kind in ("yarn", "llama3"):
        # transformers' own defaults.
        original = (
            config.get("original_max_position_embeddings")
            or settings.get("original_max_position_embeddings")
            or context
        )
        settings = {**settings, "original_max_position_embeddings": original}
    if kind == "default":
        return Rope(base)
    if kind == "linear":
        return Rope(
            base, {"rope.scaling.type": "linear", "rope.scaling.factor": number(settings, "factor")}
        )
    if kind == "yarn":
        return Rope(base, _yarn(settings, context))
    return Rope(base, {}, _llama3_divisors(settings, base, head_dim))


def _yarn(settings: dict[str, Any], context: Any) -> dict[str, Any]:
    original = int(number(settings, "original_max_position_embeddings"))
    if settings.get("factor") is None and isinstance(context, int):
        settings = {**settings, "factor": context / original}
    factor = number(settings, "factor")
    if settings.get("truncate", True) is not True:
        raise ArchitectureError(
            "rope setting 'truncate' is off; llama.cpp always rounds YaRN's range of dimensions"
        )
    metadata: dict[str, Any] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
    }
    for ours, key in _BETAS.items():
        if settings.get(ours):
            metadata[key] = number(settings, ours)
    attention, own = _attention_factor(settings, factor), _mscale(factor, 1.0)
    if not math.isclose(attention, own, rel_tol=1e-7):
        # llama.cpp multiplies by its own 1 + 0.1 ln(factor) in any case, and by this.
        metadata["rope.scaling.attn_factor"] = attention / own
    return metadata


def _attention_factor(settings: dict[str, Any], factor: float) -> float:
    """transformers' factor on cosine and sine."""
    if settings.get("attention_factor") is not None:
        return number(settings, "attention_factor")
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return _mscale(factor, number(settings, "mscale")) / _mscale(
            factor, number(settings, "mscale_all_dim")
        )
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _llama3_divisors(settings: dict[str, Any], theta: float, head_dim: int) -> Floats:
    factor, low, high = (
        number(settings, key) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    context = number(settings, "original_max_position_embeddings")
    if low >= high:
        raise ArchitectureError("llama3 rope: low_freq_factor must be below high_freq_factor")
    frequencies = 1.0 / theta ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    wavelengths = 2 * math.pi / frequencies
    smooth = (context / wavelengths - low) / (high - low)
    blended = 1.0 / ((1.0 - smooth) / factor + smooth)
    divisors = np.where(
        wavelengths < context / high, 1.0, np.where(wavelengths > context / low, factor, blended)
    )
    return divisors.astype(np.float32)
