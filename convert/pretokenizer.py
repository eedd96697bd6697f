"""Which of llama.cpp's named pre-tokenizers a tokenizer.json describes, found from its structure.

The split patterns below are the models' own, as they stand in their published tokenizer.json files; llama.cpp knows
each by the name beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convert.errors import VocabError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+"


@dataclass(frozen=True)
class Known:
    """A pre-tokenizer: its Split patterns in order, and whether whole words skip the merges (`ignore_merges`)."""

    name: str
    patterns: tuple[str, ...]
    ignore_merges: bool


KNOWN = (
    Known("llama-bpe", (_CONTRACTIONS + _WORD + r"|\p{N}{1,3}" + _TAIL,), True),
    Known("qwen2", (_CONTRACTIONS + _WORD + r"|\p{N}" + _TAIL,), False),
    Known(
        "qwen35",
        (
            _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        False,
    ),
    Known("minicpm5", (r"\p{N}{1,3}", _CONTRACTIONS + _WORD + r"|\p{N}+" + _TAIL), True),
)


def identify(document: dict[str, Any]) -> tuple[str, str]:
    """(name, reason) for `tokenizer.ggml.pre`. Raises VocabError when the structure is not one we know."""
    steps = _steps(document.get("pre_tokenizer"))
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True) and not steps[0].get("add_prefix_space", False):
        return "gpt-2", "a single ByteLevel step with its own (GPT-2) pattern"
    if kinds and kinds[-1] == "ByteLevel" and not steps[-1].get("use_regex", True) and not steps[-1].get("add_prefix_space", False):
        patterns = tuple(_pattern(step) for step in steps[:-1])
        ignore = bool(document.get("model", {}).get("ignore_merges"))
        for known in KNOWN:
            if patterns == known.patterns and ignore == known.ignore_merges:
                return known.name, f"its {len(patterns)} split pattern(s) and ignore_merges={ignore} are those of {known.name}"
    described = " + ".join(str(kind) for kind in kinds) or "none"
    raise VocabError(f"pre-tokenizer not recognised ({described})", "name it with --pre; it will be proven by encoding text both ways")


def _pattern(step: dict[str, Any]) -> str | None:
    """The regular expression of an isolating Split step; None for any other step."""
    pattern = step.get("pattern")
    if step.get("type") != "Split" or step.get("behavior") != "Isolated" or step.get("invert") or not isinstance(pattern, dict):
        return None
    expression = pattern.get("Regex")
    return expression if isinstance(expression, str) else None


def _steps(pre_tokenizer: Any) -> list[dict[str, Any]]:
    if not isinstance(pre_tokenizer, dict):
        return []
    if pre_tokenizer.get("type") == "Sequence":
        return [step for step in pre_tokenizer.get("pretokenizers", []) if isinstance(step, dict)]
    return [pre_tokenizer]
