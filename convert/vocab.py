"""A GGUF vocabulary, the result of every reader of a tokenizer's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from convert.errors import VocabError

WRONG_SIZE = (
    "the embedding and the tokenizer do not belong together: was the embedding resized, "
    "and saved with the adapter (modules_to_save)?"
)


def require_unique(tokens: Sequence[str]) -> None:
    """Raise VocabError for two tokens of the same text, which would end llama.cpp's process."""
    if len(set(tokens)) == len(tokens):
        return
    seen: dict[str, int] = {}
    for number, text in enumerate(tokens):
        if text in seen:
            raise VocabError(
                f"{text[:60]!r} is the text of the tokens {seen[text]} and {number}; "
                "llama.cpp needs them to differ",
                "this tokenizer cannot be carried over to a GGUF",
            )
        seen[text] = number


@dataclass(frozen=True)
class Vocab:
    """`metadata` holds finished `tokenizer.*` keys; `notes` lists decisions and their reasons.

    `folder` holds the tokenizer's files. The two tokenizers agree on text in `normal_form` (on all
    text where it is None), and with `after_bos` on text after a BOS.
    """

    metadata: dict[str, Any]
    notes: tuple[str, ...]
    folder: Path
    normal_form: Literal["NFC"] | None = None
    after_bos: bool = False

    @property
    def bos(self) -> str:
        """The text of the BOS token, "" without one."""
        number = self.metadata.get("tokenizer.ggml.bos_token_id")
        return "" if number is None else str(self.metadata["tokenizer.ggml.tokens"][number])
