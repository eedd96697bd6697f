"""adapter_config.json of a PEFT LoRA, reduced to what a merge needs; anything that would change the result is refused.

Scaling follows PEFT: alpha / rank, or alpha / sqrt(rank) with rsLoRA; `rank_pattern` and `alpha_pattern` are regular
expressions matched at the end of a module path. `fan_in_fan_out` only affects GPT-2 style Conv1D layers, which none of
our architectures has, and is ignored for Linear layers exactly as PEFT does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from convert.errors import AdapterError

T = TypeVar("T")

# Settings that only matter while training, or that say which modules were wrapped (the stored tensors tell us that).
_HARMLESS = frozenset(
    "auto_mapping base_model_name_or_path base_model_class bias corda_config ensure_weight_tying eva_config exclude_modules "
    "fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform lora_dropout lora_ga_config "
    "loraplus_lr_ratio megatron_config "
    "megatron_core modules_to_save parent_library peft_type peft_version qalora_group_size revision runtime_config "
    "target_modules task_type trainable_token_indices".split()
)
_HANDLED = frozenset("r lora_alpha use_rslora use_dora rank_pattern alpha_pattern lora_bias".split())


@dataclass(frozen=True)
class AdapterConfig:
    """Rank and alpha with their per-module patterns, and the variants in use."""

    rank: int
    alpha: float
    rslora: bool
    dora: bool
    bias_mode: str
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    trainable_tokens: Mapping[str, tuple[int, ...]]
    base: str | None

    def scale_of_default(self) -> float:
        """The factor on B @ A for a module that no pattern names."""
        return self.alpha / math.sqrt(self.rank) if self.rslora else self.alpha / self.rank

    def scale(self, module: str, rank: int) -> float:
        """The factor on B @ A for a module whose stored A has `rank` rows. Raises AdapterError if the config disagrees."""
        promised = _match(self.rank_pattern, module, self.rank)
        if promised != rank:
            raise AdapterError(f"{module}: the adapter stores rank {rank}, adapter_config.json says {promised}")
        alpha = _match(self.alpha_pattern, module, self.alpha)
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank


def _match(patterns: Mapping[str, T], module: str, default: T) -> T:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def parse_adapter_config(document: Mapping[str, Any]) -> AdapterConfig:
    """The config, checked. Raises AdapterError naming the first setting that cannot be merged exactly."""
    if document.get("peft_type") != "LORA":
        raise AdapterError(f"adapter type {document.get('peft_type')!r} is not supported", "only LoRA adapters can be merged")
    for key, value in document.items():
        if key not in _HARMLESS | _HANDLED and value not in (None, False, [], {}, ""):
            raise AdapterError(
                f"adapter_config.json sets {key!r}, which kmint does not know how to merge", "merge it with PEFT and convert the result"
            )
    if document.get("use_bdlora"):
        raise AdapterError("block-diagonal LoRA is not supported", "merge it with PEFT and convert the result")
    rank, alpha = document.get("r"), document.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise AdapterError(f"adapter_config.json: r={rank!r}, lora_alpha={alpha!r} are not usable")
    return AdapterConfig(
        rank,
        float(alpha),
        bool(document.get("use_rslora")),
        bool(document.get("use_dora")),
        str(document.get("bias") or "none"),
        _patterns(document, "rank_pattern"),
        _patterns(document, "alpha_pattern"),
        _token_rows(document.get("trainable_token_indices")),
        document.get("base_model_name_or_path"),
    )


def _patterns(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    patterns = document.get(key) or {}
    if not isinstance(patterns, dict):
        raise AdapterError(f"adapter_config.json: {key} is not an object")
    for pattern, value in patterns.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise AdapterError(f"adapter_config.json: {key} has the invalid pattern {pattern[:60]!r} ({error})") from None
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise AdapterError(f"adapter_config.json: {key}[{pattern[:60]!r}] is {value!r}, a positive number is needed")
    return patterns


def _token_rows(setting: Any) -> dict[str, tuple[int, ...]]:
    if setting is None:
        return {}
    by_module = setting if isinstance(setting, dict) else {"embed_tokens": setting}
    if not all(isinstance(rows, list) and all(type(row) is int and row >= 0 for row in rows) for rows in by_module.values()):
        raise AdapterError("adapter_config.json: trainable_token_indices is not a list of token ids")
    return {module: tuple(rows) for module, rows in by_module.items()}
