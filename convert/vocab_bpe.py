"""A byte-level BPE tokenizer.json -> GGUF vocabulary keys.

llama.cpp knows pre-tokenizers by name, not by content, and a wrong name degrades the model
silently. So the name comes from the structure of tokenizer.json, never from a hash of its output.
The user can override it, and `verify.py` proves it by encoding text both ways.
"""

from __future__ import annotations

from typing import Any

from convert.errors import VocabError
from convert.normalizer import normal_form
from convert.pretokenizer import named
from convert.sentencepiece import CONTROL, NORMAL, UNUSED, USER_DEFINED
from convert.special_tokens import TokenizerHome, looks_special, special_metadata
from convert.vocab import WRONG_SIZE, Vocab, require_unique


def read_bpe(
    home: TokenizerHome, document: dict[str, Any], vocab_size: int, *, pre: str | None = None
) -> Vocab:
    """The vocabulary of a byte-level BPE tokenizer.json. Raises VocabError."""
    model, form = document["model"], normal_form(document)
    name, reason = named(document, pre)
    added = {token["id"]: token for token in document.get("added_tokens", [])}
    tokens, types = _tokens(model["vocab"], added, vocab_size)
    require_unique(tokens)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [_merge(entry) for entry in model.get("merges", [])],
    }
    metadata |= special_metadata(
        home, document, {text: number for number, text in enumerate(tokens)}, vocab_size
    )
    notes = [f"pre-tokenizer {name}: {reason}"]
    if form is not None:
        notes.append(
            f"the tokenizer normalises text to {form}, llama.cpp does not; "
            f"the proof uses {form} text"
        )
    return Vocab(metadata, tuple(notes), home.folder, normal_form=form)


def _tokens(
    vocab: dict[str, int], added: dict[int, dict[str, Any]], vocab_size: int
) -> tuple[list[str], list[int]]:
    texts = {number: text for text, number in vocab.items()}
    texts |= {number: token["content"] for number, token in added.items()}
    beyond = [number for number in texts if not 0 <= number < vocab_size]
    if beyond:
        raise VocabError(
            f"token id {beyond[0]} does not fit in vocab_size {vocab_size}", WRONG_SIZE
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
    """One merge as "left right"; a space inside a part becomes chr(288), as in llama.cpp's
    converter.
    """
    if isinstance(entry, str):
        return entry
    left, right = (part.replace(" ", chr(ord(" ") + 256)) for part in entry)
    return f"{left} {right}"
