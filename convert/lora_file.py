"""A LoRA adapter as a GGUF that llama.cpp applies at run time, without the base's weights.

llama.cpp adds (alpha / rank) * B @ (A @ x) to a weight's product with x. Re-ordered rows of a
weight are re-ordered rows of B; re-ordered columns are re-ordered columns of A. The file has one
alpha, so rsLoRA and per-module patterns are folded into B. Source: src/llama-adapter.cpp and
convert_lora_to_gguf.py of llama.cpp.

Limits: only changes of the form B @ A. DoRA, biases, retrained or added tokens and whole replaced
tensors are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from convert.adapter import Adapter, Change
from convert.errors import AdapterError
from convert.recipe import Recipe, TensorRule
from convert.safetensors_file import SafetensorsFile

_MERGE = "merge it into its base instead: give --base with the weights and leave out --adapter-only"
_UNFIT = {
    ".lora_magnitude_vector": "DoRA",
    ".lora_B.bias": "lora_bias",
    ".token_adapter.trainable_tokens_delta": "trainable_token_indices",
}


@dataclass(frozen=True)
class LoraRecipe:
    """`recipe.tensors` read their rows from the adapter's own file; `notes` lists changes to B."""

    recipe: Recipe
    notes: tuple[str, ...]


def lora_recipe(base: Recipe, adapter: Adapter, file: SafetensorsFile) -> LoraRecipe:
    """The file for `adapter` over a base with recipe `base`.

    Raises AdapterError for a change that such a file cannot hold.
    """
    rules = {rule.source: rule for rule in base.tensors}
    tied = "output.weight" not in {rule.name for rule in base.tensors}
    alpha = adapter.config.scale_of_default() * adapter.config.rank
    tensors: list[TensorRule] = []
    folded = []
    for source, change in adapter.changes.items():
        _refuse_unfit(source, change)
        rule = rules.get(source)
        if rule is None or rule.apply is not None:
            raise AdapterError(f"{source}: llama.cpp has no run-time LoRA for this tensor", _MERGE)
        if change.replacement is not None and file.entries[change.replacement].shape != rule.shape:
            raise AdapterError(
                f"{source}: the adapter was trained with a resized vocabulary, which a LoRA "
                "file cannot hold",
                _MERGE,
            )
        if ".lora_A" in change.parts:
            a, b = change.parts[".lora_A"], change.parts[".lora_B"]
            rank = file.entries[a].shape[0]
            first = TensorRule(
                name=f"{rule.name}.lora_a",
                shape=(rank, rule.shape[1]),
                source=a,
                columns=rule.columns,
            )
        else:
            if tied:
                raise AdapterError(
                    f"{source}: the head is tied to this embedding, and llama.cpp would "
                    "change it too",
                    _MERGE,
                )
            a, b = change.parts[".lora_embedding_A"], change.parts[".lora_embedding_B"]
            rank = file.entries[a].shape[0]
            first = TensorRule(
                name=f"{rule.name}.lora_a",
                shape=(rule.shape[0], rank),
                values=np.ascontiguousarray(file.rows(a).T),
            )
        if change.replacement is not None:
            folded.append(f"{rule.name}: the adapter's copy of the base's weights is left out")
        factor = adapter.config.scale(change.module, rank) * rank / alpha
        if factor != 1.0:
            folded.append(
                f"{rule.name}: its scale differs from the file's, B is multiplied by {factor:.6g}"
            )
        scaled = None if factor == 1.0 else partial(np.multiply, np.float32(factor))
        tensors += [
            first,
            TensorRule(
                name=f"{rule.name}.lora_b",
                shape=(file.entries[b].shape[0], rank),
                source=b,
                rows=rule.rows,
                apply=scaled,
            ),
        ]
    metadata = {
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alpha),
    }
    recipe = Recipe(
        architecture=base.architecture,
        metadata=metadata,
        tensors=tuple(tensors),
        vocab_size=base.vocab_size,
        context_length=base.context_length,
    )
    return LoraRecipe(recipe, tuple(folded))


def _refuse_unfit(source: str, change: Change) -> None:
    # PEFT saves a copy of a base embedding next to its LoRA, under this name.
    if change.replacement is not None and not (
        ".base_layer." in change.replacement and len(change.parts) > 1
    ):
        raise AdapterError(
            f"{source}: modules_to_save (or a trained bias) replaces the whole tensor; a "
            "LoRA file cannot hold it",
            _MERGE,
        )
    for part, feature in _UNFIT.items():
        if part in change.parts:
            raise AdapterError(
                f"{source}: {feature} cannot be applied at run time by llama.cpp", _MERGE
            )
