"""The architecture of a checkpoint, its recipe, and the tensors that its config promises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from convert import llama, qwen35
from convert.errors import ArchitectureError
from convert.recipe import Recipe
from convert.source import read_config

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Architecture:
    """`recipe(config, names, shape)` of a checkpoint; `expected(config)` lists all tensors but the
    head.

    `left_out(name)` gives the reason why a tensor is not exported, or None.
    """

    recipe: Callable[..., Recipe]
    expected: Callable[[dict[str, Any]], Shapes]
    left_out: Callable[[str], str | None]


def _like_llama(family: llama.Family) -> Architecture:
    return Architecture(
        partial(llama.recipe, family=family),
        partial(llama.expected_shapes, family=family),
        llama.left_out,
    )


_QWEN35 = Architecture(qwen35.recipe, qwen35.expected_shapes, qwen35.left_out)
ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": _like_llama(llama.LLAMA),
    "MistralForCausalLM": _like_llama(llama.MISTRAL),
    "Qwen2ForCausalLM": _like_llama(llama.QWEN2),
    "Qwen3ForCausalLM": _like_llama(llama.QWEN3),
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Qwen3_5ForCausalLM": _QWEN35,
}


class Checkpoint(Protocol):
    """The input of a recipe: a merged checkpoint, or a skeleton."""

    @property
    def config(self) -> dict[str, Any]:
        """config.json with its text part merged in."""

    @property
    def names(self) -> Collection[str]:
        """Every tensor."""

    def shape(self, name: str) -> tuple[int, ...]:
        """One tensor's shape."""


class Skeleton:
    """The checkpoint that a folder's config.json promises, without its weights.

    Raises SourceError or ArchitectureError.
    """

    def __init__(self, folder: Path) -> None:
        self.raw_config, self.config = read_config(folder)
        self._shapes = _architecture(self.raw_config).expected(self.config)
        if not self.config.get("tie_word_embeddings", False):
            embedding = next(
                shape
                for name, shape in self._shapes.items()
                if name.endswith("embed_tokens.weight")
            )
            self._shapes["lm_head.weight"] = embedding

    @property
    def names(self) -> frozenset[str]:
        """Every tensor name that the config promises."""
        return frozenset(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's promised shape."""
        return self._shapes[name]


def recipe_of(raw_config: Mapping[str, Any], checkpoint: Checkpoint) -> Recipe:
    """The recipe for a checkpoint. Raises ArchitectureError for an unsupported architecture."""
    return _architecture(raw_config).recipe(checkpoint.config, checkpoint.names, checkpoint.shape)


def left_out_by(raw_config: Mapping[str, Any]) -> Callable[[str], str | None]:
    """`left_out` of a checkpoint's architecture.

    Raises ArchitectureError for an unsupported one.
    """
    return _architecture(raw_config).left_out


def _architecture(raw_config: Mapping[str, Any]) -> Architecture:
    named = raw_config.get("architectures") or []
    for name in named if isinstance(named, list) else []:
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise ArchitectureError(
        f"architecture {repr(named)[:60]} is not supported",
        f"supported: {', '.join(ARCHITECTURES)}",
    )
