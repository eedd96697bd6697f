"""A byte-level BPE tokenizer.json -> GGUF vocabulary keys.

llama.cpp knows pre-tokenizers by name, not by content, and a wrong name degrades the model silently. The name is
therefore found from the structure of tokenizer.json (never from a hash of its output), can be overridden, and is
proven afterwards by encoding text both ways (`verify.py`).

Limits: byte-level BPE only; SentencePiece is handled in `vocab_spm.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert.errors import VocabError
from convert.pretokenizer import identify
from convert.source import read_json

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_SPECIAL = ("bos", "eos", "unk", "pad")


@dataclass(frozen=True)
class Vocab:
    """`metadata` holds finished `tokenizer.*` keys; `notes` says what was decided and why."""

    metadata: dict[str, Any]
    notes: tuple[str, ...]


def read_bpe(folder: Path, vocab_size: int, *, pre: str | None = None) -> Vocab:
    """The vocabulary of a folder with tokenizer.json, padded to `vocab_size`. Raises VocabError."""
    document = read_json(folder / "tokenizer.json")
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise VocabError(f"{folder / 'tokenizer.json'}: not a BPE tokenizer")
    if model.get("byte_fallback"):
        raise VocabError("the tokenizer falls back to bytes (SentencePiece style), not byte-level BPE")
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
    metadata |= special_tokens(folder, document, {text: number for number, text in enumerate(tokens)})
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
            control = added[number].get("special") or (text.startswith("<|") and text.endswith("|>"))
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


def special_tokens(folder: Path, document: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    """Special token ids, whether they are added by default, and the chat template."""
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    metadata: dict[str, Any] = {}
    for kind in _SPECIAL:
        token = config.get(f"{kind}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            metadata[f"tokenizer.ggml.{'unknown' if kind == 'unk' else 'padding' if kind == 'pad' else kind}_token_id"] = ids[text]
    post = document.get("post_processor")
    if isinstance(post, dict):
        added = _template_adds(post)
        if added is not None:
            metadata["tokenizer.ggml.add_bos_token"], metadata["tokenizer.ggml.add_eos_token"] = added
    if isinstance(config.get("add_bos_token"), bool):
        metadata["tokenizer.ggml.add_bos_token"] = config["add_bos_token"]
    template_path = folder / "chat_template.jinja"
    template = template_path.read_text(encoding="utf-8") if template_path.is_file() else config.get("chat_template")
    if isinstance(template, str):
        metadata["tokenizer.chat_template"] = template
    return metadata


def _template_adds(post: dict[str, Any]) -> tuple[bool, bool] | None:
    """Whether a TemplateProcessing adds a token before and after a single text; None without one."""
    parts = post.get("processors", []) if post.get("type") == "Sequence" else [post]
    for part in parts:
        if part.get("type") == "TemplateProcessing":
            single = part.get("single", [])
            return bool(single) and "SpecialToken" in single[0], len(single) > 1 and "SpecialToken" in single[-1]
    return None
