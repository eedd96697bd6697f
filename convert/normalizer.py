"""The normaliser of a byte-level tokenizer.json, and whether llama.cpp can replace it.

llama.cpp's byte-level vocabularies do not change text. NFC changes hardly any text and no prompt of
a smith, so a tokenizer with NFC is converted with a note. Every other normaliser changes ordinary
text, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from convert.errors import VocabError

_MERGING = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")


def normal_form(document: Mapping[str, Any]) -> Literal["NFC"] | None:
    """ "NFC" or None, for a tokenizer.json whose text llama.cpp reads alike.

    Raises VocabError for any other.
    """
    for key in _MERGING:
        if document.get("model", {}).get(key):
            raise VocabError(
                f"the tokenizer's model sets {key}, which llama.cpp's byte-level vocabulary "
                "does not know",
                "this tokenizer cannot be carried over to a GGUF",
            )
    kinds = tuple(_kinds(document.get("normalizer")))
    if set(kinds) <= {"NFC"}:
        return "NFC" if kinds else None
    other = next(kind for kind in kinds if kind != "NFC")
    raise VocabError(
        f"tokenizer.json normalises text with {other}, which llama.cpp's byte-level "
        "vocabulary does not do",
        "this tokenizer cannot be carried over to a GGUF: the model would read other "
        "tokens than it was trained on",
    )


def _kinds(normalizer: Any) -> list[str]:
    if not isinstance(normalizer, dict):
        return []
    if normalizer.get("type") == "Sequence":
        return [kind for step in normalizer.get("normalizers", []) for kind in _kinds(step)]
    return [str(normalizer.get("type"))]
