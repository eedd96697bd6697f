"""Token ids of a text as the checkpoint's own tokenizer gives them: the side of the proof that is not llama.cpp's.

tokenizer.json is read by Hugging Face `tokenizers`. With a tokenizer.model alone, the `sentencepiece` package is needed,
which kmint does not depend on; it knows no added tokens, so texts that hold one are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Encoded:
    """The texts that could be encoded, their ids, and by which tokenizer; `reason` says why there are none."""

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    by: str
    reason: str = ""


def encode(folder: Path, texts: Sequence[str]) -> Encoded:
    """Encode without adding special tokens; special tokens in the text are recognised."""
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = tuple(tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
        return Encoded(tuple(texts), ids, "tokenizers")
    if find_spec("sentencepiece") is None:
        return Encoded((), (), "", "there is no tokenizer.json, and sentencepiece is not installed")
    processor: Any = import_module("sentencepiece").SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    plain = tuple(text for text in texts if "<|" not in text)
    return Encoded(plain, tuple(tuple(processor.encode(text)) for text in plain), "sentencepiece")
