"""Which architecture a checkpoint is, and its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convert import llama, qwen35
from convert.errors import ArchitectureError
from convert.merge import Merged
from convert.recipe import Recipe

ARCHITECTURES: Mapping[str, Callable[..., Recipe]] = {
    "LlamaForCausalLM": llama.recipe,
    "Qwen3_5ForConditionalGeneration": qwen35.recipe,
    "Qwen3_5ForCausalLM": qwen35.recipe,
}


def recipe_of(raw_config: Mapping[str, Any], merged: Merged) -> Recipe:
    """The recipe for a checkpoint. Raises ArchitectureError when no architecture of ours fits."""
    named = raw_config.get("architectures") or []
    for name in named if isinstance(named, list) else []:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name](merged.config, merged.names, merged.shape)
    raise ArchitectureError(f"architecture {named!r} is not supported", f"supported: {', '.join(ARCHITECTURES)}")
