"""From a checkpoint folder to a GGUF: picks the architecture, carries the tokenizer over, writes the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert import llama
from convert.errors import ArchitectureError, ConvertError
from convert.recipe import Recipe
from convert.source import Source
from convert.vocab import read_bpe
from convert.write import DIRECT_TYPES, Progress, write_gguf

ARCHITECTURES: Mapping[str, Callable[..., Recipe]] = {"LlamaForCausalLM": llama.recipe}


@dataclass(frozen=True)
class Exported:
    """What was written: file size in bytes, tensors, and every decision worth knowing."""

    path: Path
    architecture: str
    bytes: int
    tensors: int
    notes: tuple[str, ...]


def recipe_of(source: Source) -> Recipe:
    """The recipe for a checkpoint. Raises ArchitectureError when no architecture of ours fits."""
    named = source.raw_config.get("architectures") or source.config.get("architectures") or []
    for name in named if isinstance(named, list) else []:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name](source.config, source.names, source.shape)
    raise ArchitectureError(f"architecture {named!r} is not supported", f"supported: {', '.join(ARCHITECTURES)}")


def export(
    folder: Path,
    out: Path,
    kind: str,
    *,
    name: str,
    pre: str | None = None,
    extra: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write `folder` to `out` as `kind` (F32, F16, BF16 or Q8_0). `extra` adds GGUF keys. Raises ConvertError."""
    if kind not in DIRECT_TYPES:
        raise ConvertError(f"{kind} cannot be written directly", f"write one of {', '.join(DIRECT_TYPES)} and quantise it")
    with Source(folder) as source:
        recipe = recipe_of(source)
        vocab = read_bpe(folder, recipe.vocab_size, pre=pre)
        general = {"general.type": "model", "general.name": name, **(extra or {})}
        plan = write_gguf(out, recipe, vocab.metadata, general, kind, source.rows, progress)
    notes = (*vocab.notes, *plan.fallbacks, *(f"{tensor} left out: {why}" for tensor, why in sorted(recipe.dropped.items())))
    return Exported(out, recipe.architecture, out.stat().st_size, len(recipe.tensors), notes)
