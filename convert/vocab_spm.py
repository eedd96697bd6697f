"""A SentencePiece-style BPE vocabulary (tokenizer.model, or tokenizer.json with byte fallback) -> GGUF's `llama` vocabulary.

llama.cpp merges the neighbouring pieces whose concatenation has the best score. tokenizer.model holds those scores;
tokenizer.json holds an ordered list of merges, from which equivalent scores follow when every way to make a token is in
the list and the tokens come in one order, which is checked.

Limits: llama.cpp puts the leading space before every stretch of text that follows a special token. A tokenizer that puts
it only before the first one is refused, because its chat prompts would be read differently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from convert.errors import VocabError
from convert.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Piece, read_sentencepiece
from convert.source import read_json
from convert.special_tokens import looks_special, special_metadata
from convert.vocab import Vocab

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_ADDED_SCORE, _PADDING_SCORE = -1000.0, -10000.0


def read_spm(folder: Path, document: Mapping[str, Any], vocab_size: int) -> Vocab:
    """The vocabulary of a folder; `document` is its tokenizer.json, empty without one. Raises SourceError or VocabError."""
    path = folder / "tokenizer.model"
    if path.is_file():
        model = read_sentencepiece(path)
        pieces, prefix, origin = list(model.pieces), model.dummy_prefix, "scores from tokenizer.model"
        if document:
            prefix = _space_prefix(document)
    else:
        pieces, prefix, origin = (
            _pieces_of_merges(document["model"], set(_added(folder, document))),
            _space_prefix(document),
            "scores from the order of the merges",
        )
    added = _added(folder, document)
    beyond = max([len(pieces) - 1, *added])
    if beyond >= vocab_size:
        raise VocabError(
            f"token id {beyond} does not fit in vocab_size {vocab_size}", "config.json and the tokenizer do not belong together"
        )
    pieces += [Piece(f"[PAD{number}]", _PADDING_SCORE, UNUSED) for number in range(len(pieces), vocab_size)]
    for number, (text, kind) in added.items():
        pieces[number] = Piece(text if kind == CONTROL else text.replace(_SPACE, " "), _ADDED_SCORE, kind)
    _require_bytes(pieces)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.text for piece in pieces],
        "tokenizer.ggml.scores": [piece.score for piece in pieces],
        "tokenizer.ggml.token_type": [piece.kind for piece in pieces],
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    metadata |= special_metadata(folder, document, {piece.text: number for number, piece in enumerate(pieces)}, vocab_size)
    return Vocab(metadata, (f"SentencePiece vocabulary: {origin}, {len(added)} added tokens",))


def _added(folder: Path, document: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """Added tokens by id as (text, type), later files over earlier ones, as transformers reads them."""
    entries: dict[int, tuple[str, bool]] = {}
    if (folder / "added_tokens.json").is_file():
        entries |= {number: (text, False) for text, number in read_json(folder / "added_tokens.json").items()}
    entries |= {token["id"]: (token["content"], bool(token.get("special"))) for token in document.get("added_tokens", [])}
    if (folder / "tokenizer_config.json").is_file():
        listed = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
        entries |= {int(number): (token["content"], bool(token.get("special"))) for number, token in listed.items()}
    if not all(type(number) is int and number >= 0 for number in entries):
        raise VocabError("an added token has an id that is not a number", "download the tokenizer's files again")
    return {number: (text, CONTROL if special or looks_special(text) else USER_DEFINED) for number, (text, special) in entries.items()}


def _require_bytes(pieces: list[Piece]) -> None:
    missing = {f"<0x{byte:02X}>" for byte in range(256)} - {piece.text for piece in pieces if piece.kind == BYTE}
    if missing:
        raise VocabError(f"the vocabulary has no {min(missing)} token; llama.cpp needs all 256 byte tokens to fall back on")


def _space_prefix(document: Mapping[str, Any]) -> bool:
    """Whether a space is put before every text, from tokenizer.json's two ways to say it. Raises VocabError on a third."""
    normalizer, pre = document.get("normalizer"), document.get("pre_tokenizer")
    steps = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    described = [(step.get("type"), step.get("prepend"), step.get("pattern"), step.get("content")) for step in steps]
    prepend, replace = ("Prepend", _SPACE, None, None), ("Replace", None, {"String": " "}, _SPACE)
    if pre is None and described in ([prepend, replace], [replace]):
        return described[0] == prepend
    if not described and isinstance(pre, dict) and pre.get("type") == "Metaspace" and not pre.get("split", True):
        scheme = pre.get("prepend_scheme", "always")
        if scheme == "first":
            raise VocabError(
                "the tokenizer puts a space before the first piece of text only (prepend_scheme first); llama.cpp would put one "
                "after every special token as well",
                "such chat prompts cannot be carried over to llama.cpp's SentencePiece vocabulary",
            )
        return bool(scheme == "always")
    raise VocabError("the tokenizer's normalizer and pre_tokenizer are not those of a SentencePiece model")


def _pieces_of_merges(model: Mapping[str, Any], added: Collection[int]) -> list[Piece]:
    """Pieces of a byte-fallback BPE in id order, scored so that best-score merging equals merging in the list's order.

    Tokens in `added` are recognised before any merging and need no merges.
    """
    if model.get("ignore_merges") or model.get("dropout") or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise VocabError("the tokenizer merges in a way that llama.cpp's SentencePiece vocabulary does not")
    vocab: dict[str, int] = model["vocab"]
    pairs = [tuple(entry.split(" ")) if isinstance(entry, str) else tuple(entry) for entry in model.get("merges", [])]
    made: list[str] = []
    for left, right in pairs:
        if not made or made[-1] != left + right:
            made.append(left + right)
    rank = {text: index for index, text in enumerate(made)}
    listed = set(pairs)
    merged = (text for text, number in vocab.items() if number not in added and not _BYTE.fullmatch(text))
    ways = ((text[:cut], text[cut:]) for text in merged for cut in range(1, len(text)) if text[cut:] in vocab)
    stray = next((pair for pair in ways if pair[0] in vocab and pair not in listed), None)
    if len(rank) != len(made) or stray is not None:
        raise VocabError("the order of the tokenizer's merges does not follow from scores, which is all llama.cpp's vocabulary has")
    unknown = model.get("unk_token")
    texts = sorted(vocab, key=lambda text: vocab[text])
    if [vocab[text] for text in texts] != list(range(len(texts))):
        raise VocabError("the ids of the tokenizer's vocabulary have gaps")
    return [Piece(text, float(-rank.get(text, len(made))), _kind(text, unknown)) for text in texts]


def _kind(text: str, unknown: Any) -> int:
    return BYTE if _BYTE.fullmatch(text) else UNKNOWN if text == unknown else NORMAL
