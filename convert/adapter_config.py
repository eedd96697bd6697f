"""The settings of a PEFT LoRA's adapter_config.json that a merge needs.

Any other setting that would change the result is refused. Scaling follows PEFT: alpha / rank, or
alpha / sqrt(rank) with rsLoRA. `rank_pattern` and `alpha_pattern` are regular expressions for the
end of a module path (`patterns.py`). `fan_in_fan_out` concerns Conv1D layers only, which no
supported architecture has. As in PEFT it has no effect on Linear layers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from convert.errors import AdapterError
from convert.patterns import first_matches

T = TypeVar("T")

# Initialisations that keep the base's weights. Every other one subtracts its first A and B from
# them, or replaces them, so that the adapter alone does not determine the trained model.
_BASE_UNTOUCHED = frozenset(("gaussian", "eva", "orthogonal"))

# Settings that matter only in training, or that list the wrapped modules, which the stored tensors
# show.
_HARMLESS = frozenset(
    "auto_mapping base_model_name_or_path base_model_class bias corda_config "
    "ensure_weight_tying eva_config exclude_modules "
    "fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform "
    "lora_dropout lora_ga_config "
    "loraplus_lr_ratio megatron_config "
    "megatron_core modules_to_save parent_library peft_type peft_version qalora_group_size "
    "revision runtime_config "
    "target_modules task_type trainable_token_indices".split()
)
_HANDLED = frozenset(
    "r lora_alpha use_rslora use_dora rank_pattern alpha_pattern lora_bias".split()
)


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """Rank and alpha, and the variants in use.

    `ranks` and `alphas` hold the values of single modules. `tied` means that a head tied to the
    embedding follows its changes. `targets` are plain module names that PEFT wrapped in every
    layer, or empty. The keys of `ranks` and `alphas` are patterns, and module paths after
    `for_modules`.
    """

    rank: int
    alpha: float
    rslora: bool
    dora: bool
    bias_mode: str
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    trainable_tokens: Mapping[str, tuple[int, ...]]
    base: str | None
    tied: bool = False
    targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def scale_of_default(self) -> float:
        """The factor on B @ A for a module that no pattern names."""
        return self.alpha / math.sqrt(self.rank) if self.rslora else self.alpha / self.rank

    def scale(self, module: str, rank: int) -> float:
        """The factor on B @ A for a module whose stored A has `rank` rows.

        Raises AdapterError if the config disagrees.
        """
        promised = self.ranks.get(module, self.rank)
        if promised != rank:
            raise AdapterError(
                f"{module}: the adapter stores rank {rank}, adapter_config.json says {promised}"
            )
        alpha = self.alphas.get(module, self.alpha)
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank

    def for_modules(self, modules: Collection[str]) -> AdapterConfig:
        """The config with its patterns resolved for these modules.

        Raises AdapterError for an invalid one.
        """
        return replace(
            self,
            ranks=_of_modules("rank_pattern", self.ranks, modules),
            alphas=_of_modules("alpha_pattern", self.alphas, modules),
        )


def _of_modules(key: str, values: Mapping[str, T], modules: Collection[str]) -> dict[str, T]:
    return {
        module: values[pattern] for module, pattern in first_matches(key, values, modules).items()
    }


def parse_adapter_config(document: Mapping[str, Any]) -> AdapterConfig:
    """The checked config.

    Raises AdapterError for the first setting that cannot be merged exactly.
    """
    if "peft_type" not in document and (
        "fine_tune_type" in document or "lora_parameters" in document
    ):
        raise AdapterError(
            "adapter_config.json is in MLX's layout; kmint reads PEFT's",
            "fuse it with `mlx_lm.fuse` and convert the fused checkpoint",
        )
    if document.get("peft_type") != "LORA":
        raise AdapterError(
            f"adapter type {document.get('peft_type')!r} is not supported",
            "only LoRA adapters can be merged",
        )
    for key, value in document.items():
        if key not in _HARMLESS | _HANDLED and value not in (None, False, [], {}, ""):
            raise AdapterError(
                f"adapter_config.json sets {key!r}, which kmint does not know how to merge",
                "merge it with PEFT and convert the result",
            )
    _refuse_changed_base(document.get("init_lora_weights"))
    if document.get("use_bdlora"):
        raise AdapterError(
            "block-diagonal LoRA is not supported", "merge it with PEFT and convert the result"
        )
    rank, alpha = document.get("r"), document.get("lora_alpha")
    if (
        type(rank) is not int
        or rank < 1
        or not isinstance(alpha, int | float)
        or not math.isfinite(alpha)
    ):
        raise AdapterError(f"adapter_config.json: r={rank!r}, lora_alpha={alpha!r} are not usable")
    return AdapterConfig(
        rank=rank,
        alpha=float(alpha),
        rslora=bool(document.get("use_rslora")),
        dora=bool(document.get("use_dora")),
        bias_mode=str(document.get("bias") or "none"),
        ranks=_patterns(document, "rank_pattern"),
        alphas=_patterns(document, "alpha_pattern"),
        trainable_tokens=_token_rows(document.get("trainable_token_indices")),
        base=document.get("base_model_name_or_path"),
        tied=bool(document.get("ensure_weight_tying")),
        targets=_plain_targets(document),
    )


def _refuse_changed_base(way: Any) -> None:
    if (
        way is None
        or isinstance(way, bool)
        or (isinstance(way, str) and way.lower() in _BASE_UNTOUCHED)
    ):
        return
    raise AdapterError(
        f"init_lora_weights is {str(way)[:40]!r}: this initialisation changed the base's "
        "weights, and the adapter "
        "does not hold that change",
        "convert the adapter with PEFT first: save_pretrained(..., "
        "path_initial_model_for_weight_conversion=...)",
    )


def _plain_targets(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of modules that PEFT wraps in all their layers; empty for a choice of layers."""
    targets = document.get("target_modules")
    limited = any(
        document.get(key) not in (None, [], "")
        for key in ("exclude_modules", "layers_to_transform", "layers_pattern")
    )
    if (
        limited
        or not isinstance(targets, list)
        or not all(isinstance(name, str) for name in targets)
    ):
        return ()
    return tuple(targets)


def _patterns(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    patterns = document.get(key) or {}
    if not isinstance(patterns, dict):
        raise AdapterError(f"adapter_config.json: {key} is not an object")
    for pattern, value in patterns.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise AdapterError(
                f"adapter_config.json: {key}[{pattern[:60]!r}] is {value!r}, a positive "
                "number is needed"
            )
    return patterns


def _token_rows(setting: Any) -> dict[str, tuple[int, ...]]:
    if setting is None:
        return {}
    by_module = setting if isinstance(setting, dict) else {"embed_tokens": setting}
    if not all(
        isinstance(rows, list) and all(type(row) is int and row >= 0 for row in rows)
        for rows in by_module.values()
    ):
        raise AdapterError(
            "adapter_config.json: trainable_token_indices is not a list of token ids"
        )
    return {module: tuple(rows) for module, rows in by_module.items()}
