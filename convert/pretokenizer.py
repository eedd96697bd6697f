"""Which of llama.cpp's named pre-tokenizers a tokenizer.json describes, found from its structure."""

from __future__ import annotations

from typing import Any

from convert.errors import VocabError


def identify(document: dict[str, Any]) -> tuple[str, str]:
    """(name, reason) for `tokenizer.ggml.pre`. Raises VocabError when the structure is not one we know."""
    steps = _steps(document.get("pre_tokenizer"))
    kinds = tuple(step.get("type") for step in steps)
    if kinds == ("ByteLevel",) and steps[0].get("use_regex", True) and not steps[0].get("add_prefix_space", False):
        return "gpt-2", "a single ByteLevel step with its own (GPT-2) pattern"
    described = " + ".join(str(kind) for kind in kinds) or "none"
    raise VocabError(f"pre-tokenizer not recognised ({described})", "name it with --pre; it will be proven by encoding text both ways")


def _steps(pre_tokenizer: Any) -> list[dict[str, Any]]:
    if not isinstance(pre_tokenizer, dict):
        return []
    if pre_tokenizer.get("type") == "Sequence":
        return [step for step in pre_tokenizer.get("pretokenizers", []) if isinstance(step, dict)]
    return [pre_tokenizer]
