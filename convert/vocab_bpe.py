"""A byte-level BPE tokenizer.json -> GGUF vocabulary keys.

llama.cpp knows pre-tokenizers by name, not by content, and a wrong name degrades the model silently. The name is
therefore found from the structure of tokenizer.json (never from a hash of its output), can be overridden, and is
proven afterwards by encoding text both ways (`verify.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convert.errors import VocabError
from convert.pretokenizer import identify
from convert.sentencepiece import CONTROL, NORMAL, UNUSED, USER_DEFINED
from convert.special_tokens import looks_special, special_metadata
from convert.vocab import Vocab


def read_bpe(folder: Path, document: dict[str, Any], vocab_size: int, *, pre: str | None = None) -> Vocab:
    """The vocabulary of a byte-level BPE tokenizer.json. Raises VocabError."""
    model = document["model"]
    name, reason = (pre, "given with --pre") if pre else identify(document)
    added = {token["id"]: token for token in document.get("added_tokens", [])}
    tokens, types = _tokens(model["vocab"], added, vocab_size)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [_merge(entry) for entry in model.get("merges", [])],
    }
    metadata |= special_metadata(folder, document, {text: number for number, text in enumerate(tokens)}, vocab_size)
    return Vocab(metadata, (f"pre-tokenizer {name}: {reason}",))


def _tokens(vocab: dict[str, int], added: dict[int, dict[str, Any]], vocab_size: int) -> tuple[list[str], list[int]]:
    texts = {number: text for text, number in vocab.items()}
    texts |= {number: token["content"] for number, token in added.items()}
    beyond = [number for number in texts if not 0 <= number < vocab_size]
    if beyond:
        raise VocabError(
            f"token id {beyond[0]} does not fit in vocab_size {vocab_size}", "config.json and tokenizer.json do not belong together"
        )
    tokens, types = [], []
    for number in range(vocab_size):
        text = texts.get(number)
        if text is None:
            tokens.append(f"[PAD{number}]")
            types.append(UNUSED)
        elif number in added:
            control = added[number].get("special") or looks_special(text)
            tokens.append(text if control else text.replace("\u2581", " "))
            types.append(CONTROL if control else USER_DEFINED)
        else:
            tokens.append(text)
            types.append(NORMAL)
    return tokens, types


def _merge(entry: Any) -> str:
    """One merge as "left right"; a space inside a part is written as chr(288), as llama.cpp's converter does."""
    if isinstance(entry, str):
        return entry
    left, right = (part.replace(" ", chr(ord(" ") + 256)) for part in entry)
    return f"{left} {right}"
