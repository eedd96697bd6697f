"""A SentencePiece-style BPE vocabulary -> GGUF's `llama` vocabulary.

The input is tokenizer.model, or tokenizer.json with byte fallback. llama.cpp merges the
neighbouring pieces whose concatenation has the best score. tokenizer.model holds those scores;
tokenizer.json holds an ordered list of merges. Equivalent scores exist when the list has every way
to make a token and the tokens come in one order, which is checked.

Limits: llama.cpp puts the leading space before every stretch of text after a special token, or
before none. A tokenizer that puts it only before a text's first piece gets none: its prompts begin
with BOS, and no space follows BOS.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from convert.errors import VocabError
from convert.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Piece,
    read_sentencepiece,
)
from convert.source import read_json
from convert.special_tokens import TokenizerHome, looks_special, special_metadata
from convert.vocab import WRONG_SIZE, Vocab, require_unique

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_ADDED_SCORE, _PADDING_SCORE = -1000.0, -10000.0


def read_spm(home: TokenizerHome, document: Mapping[str, Any], vocab_size: int) -> Vocab:
    """The vocabulary of a tokenizer; `document` is its tokenizer.json, empty without one.

    Raises SourceError or VocabError.
    """
    folder = home.folder
    path = folder / "tokenizer.model"
    if path.is_file():
        model = read_sentencepiece(path)
        pieces, origin = list(model.pieces), "scores from tokenizer.model"
        scheme = (
            _space_scheme(document) if document else "always" if model.dummy_prefix else "never"
        )
    else:
        pieces, origin = (
            _pieces_of_merges(document["model"], set(_added(folder, document))),
            "scores from the order of the merges",
        )
        scheme = _space_scheme(document)
    added = _added(folder, document)
    beyond = max([len(pieces) - 1, *added])
    if beyond >= vocab_size:
        raise VocabError(f"token id {beyond} does not fit in vocab_size {vocab_size}", WRONG_SIZE)
    pieces += [
        Piece(f"[PAD{number}]", _PADDING_SCORE, UNUSED) for number in range(len(pieces), vocab_size)
    ]
    for number, (text, kind) in added.items():
        pieces[number] = Piece(
            text if kind == CONTROL else text.replace(_SPACE, " "), _ADDED_SCORE, kind
        )
    _require_bytes(pieces)
    require_unique([piece.text for piece in pieces])
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.text for piece in pieces],
        "tokenizer.ggml.scores": [piece.score for piece in pieces],
        "tokenizer.ggml.token_type": [piece.kind for piece in pieces],
        "tokenizer.ggml.add_space_prefix": scheme == "always",
    }
    metadata |= special_metadata(
        home, document, {piece.text: number for number, piece in enumerate(pieces)}, vocab_size
    )
    notes = [f"SentencePiece vocabulary: {origin}, {len(added)} added tokens"]
    vocab = Vocab(metadata, tuple(notes), folder, after_bos=scheme == "first")
    if scheme != "first":
        return vocab
    if not vocab.bos:
        raise VocabError(
            "the tokenizer puts a space before the first piece of text only "
            "(prepend_scheme first), and has no BOS token to put before it",
            "llama.cpp's vocabulary cannot hold this tokenizer",
        )
    note = f"the proof is over text that follows {vocab.bos}; text without it loses a leading space"
    return replace(
        vocab, notes=(*notes, f"the leading space of prepend_scheme first is left out: {note}")
    )


def _added(folder: Path, document: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """Added tokens by id as (text, type), later files over earlier ones, as in transformers."""
    entries: dict[int, tuple[str, bool]] = {}
    if (folder / "added_tokens.json").is_file():
        entries |= {
            number: (text, False)
            for text, number in read_json(folder / "added_tokens.json").items()
        }
    entries |= {
        token["id"]: (token["content"], bool(token.get("special")))
        for token in document.get("added_tokens", [])
    }
    if (folder / "tokenizer_config.json").is_file():
        listed = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
        entries |= {
            int(number): (token["content"], bool(token.get("special")))
            for number, token in listed.items()
        }
    if not all(type(number) is int and number >= 0 for number in entries):
        raise VocabError(
            "an added token has an id that is not a number", "download the tokenizer's files again"
        )
    return {
        number: (text, CONTROL if special or looks_special(text) else USER_DEFINED)
        for number, (text, special) in entries.items()
    }


def _require_bytes(pieces: list[Piece]) -> None:
    missing = {f"<0x{byte:02X}>" for byte in range(256)} - {
        piece.text for piece in pieces if piece.kind == BYTE
    }
    if missing:
        raise VocabError(
            f"the vocabulary has no {min(missing)} token; llama.cpp needs all 256 byte "
            "tokens to fall back on"
        )


def _space_scheme(document: Mapping[str, Any]) -> str:
    """The place of the leading space: "always", "never", or at the "first" piece of a text alone.

    tokenizer.json has two ways to say it. Raises VocabError on a third.
    """
    normalizer, pre = document.get("normalizer"), document.get("pre_tokenizer")
    steps = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    described = [
        (step.get("type"), step.get("prepend"), step.get("pattern"), step.get("content"))
        for step in steps
    ]
    prepend, replace = ("Prepend", _SPACE, None, None), ("Replace", None, {"String": " "}, _SPACE)
    if pre is None and described in ([prepend, replace], [replace]):
        return "always" if described[0] == prepend else "never"
    if (
        not described
        and isinstance(pre, dict)
        and pre.get("type") == "Metaspace"
        and not pre.get("split", True)
    ):
        scheme = pre.get("prepend_scheme", "always")
        if scheme in ("always", "never", "first"):
            return str(scheme)
    raise VocabError(
        "the tokenizer's normalizer and pre_tokenizer are not those of a SentencePiece model"
    )


def _pieces_of_merges(model: Mapping[str, Any], added: Collection[int]) -> list[Piece]:
    """Pieces of a byte-fallback BPE in id order, with scores that give the list's order of merges.

    Tokens in `added` are recognised before any merging and need no merges.
    """
    if (
        model.get("ignore_merges")
        or model.get("dropout")
        or model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix")
    ):
        raise VocabError(
            "the tokenizer merges in a way that llama.cpp's SentencePiece vocabulary does not"
        )
    vocab: dict[str, int] = model["vocab"]
    pairs = [
        tuple(entry.split(" ")) if isinstance(entry, str) else tuple(entry)
        for entry in model.get("merges", [])
    ]
    made: list[str] = []
    for left, right in pairs:
        if not made or made[-1] != left + right:
            made.append(left + right)
    rank = {text: index for index, text in enumerate(made)}
    listed = set(pairs)
    merged = (
        text for text, number in vocab.items() if number not in added and not _BYTE.fullmatch(text)
    )
    ways = (
        (text[:cut], text[cut:])
        for text in merged
        for cut in range(1, len(text))
        if text[cut:] in vocab
    )
    stray = next((pair for pair in ways if pair[0] in vocab and pair not in listed), None)
    if len(rank) != len(made) or stray is not None:
        raise VocabError(
            "the order of the tokenizer's merges does not follow from scores, which is all "
            "llama.cpp's vocabulary has"
        )
    unknown = model.get("unk_token")
    texts = sorted(vocab, key=lambda text: vocab[text])
    if [vocab[text] for text in texts] != list(range(len(texts))):
        raise VocabError("the ids of the tokenizer's vocabulary have gaps")
    return [Piece(text, float(-rank.get(text, len(made))), _kind(text, unknown)) for text in texts]


def _kind(text: str, unknown: Any) -> int:
    return BYTE if _BYTE.fullmatch(text) else UNKNOWN if text == unknown else NORMAL
