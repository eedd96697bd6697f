"""Which architecture a checkpoint is, its recipe, and what its config alone promises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from convert import llama, qwen35
from convert.errors import ArchitectureError
from convert.recipe import Recipe
from convert.source import read_config

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Architecture:
    """`recipe(config, names, shape)` of a checkpoint; `expected(config)` is every tensor without the head."""

    recipe: Callable[..., Recipe]
    expected: Callable[[dict[str, Any]], Shapes]


_LLAMA = Architecture(llama.recipe, llama.promised_shapes)
_QWEN35 = Architecture(qwen35.recipe, qwen35.expected_shapes)
ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": _LLAMA,
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Qwen3_5ForCausalLM": _QWEN35,
}


class Checkpoint(Protocol):
    """What a recipe is made from: a merged checkpoint, or a skeleton."""

    @property
    def config(self) -> dict[str, Any]:
        """config.json with its text part merged in."""

    @property
    def names(self) -> Collection[str]:
        """Every tensor."""

    def shape(self, name: str) -> tuple[int, ...]:
        """One tensor's shape."""


class Skeleton:
    """The checkpoint that a folder's config.json promises, without its weights. Raises SourceError or ArchitectureError."""

    def __init__(self, folder: Path) -> None:
        self.raw_config, self.config = read_config(folder)
        self._shapes = _architecture(self.raw_config).expected(self.config)
        if not self.config.get("tie_word_embeddings", False):
            embedding = next(shape for name, shape in self._shapes.items() if name.endswith("embed_tokens.weight"))
            self._shapes["lm_head.weight"] = embedding

    @property
    def names(self) -> frozenset[str]:
        """Every tensor name that the config promises."""
        return frozenset(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's promised shape."""
        return self._shapes[name]


def recipe_of(raw_config: Mapping[str, Any], checkpoint: Checkpoint) -> Recipe:
    """The recipe for a checkpoint. Raises ArchitectureError when no architecture of ours fits."""
    return _architecture(raw_config).recipe(checkpoint.config, checkpoint.names, checkpoint.shape)


def _architecture(raw_config: Mapping[str, Any]) -> Architecture:
    named = raw_config.get("architectures") or []
    for name in named if isinstance(named, list) else []:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise ArchitectureError(f"architecture {named!r} is not supported", f"supported: {', '.join(ARCHITECTURES)}")
