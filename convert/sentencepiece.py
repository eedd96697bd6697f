"""Reads the parts of a SentencePiece file (tokenizer.model) that llama.cpp's vocabulary needs.

The file is a protocol buffer. Source of the fields: `sentencepiece_model.proto`
(https://github.com/google/sentencepiece); of the encoding:
https://protobuf.dev/programming-guides/encoding. Unknown fields are skipped, as the format demands.

Limits: BPE models without a normalisation table and without whitespace removal, because llama.cpp's
`llama` vocabulary does neither. Anything else is refused by name. Memory stays within the size of
the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convert import files
from convert.errors import SourceError, VocabError

MAX_BYTES = 256 * 2**20
# SentencePiece's own numbers, which are also llama.cpp's token types.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_BPE = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its index is its id. `kind` is one of the numbers above."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """The vocabulary in id order. `dummy_prefix` puts a space before every text."""

    pieces: tuple[Piece, ...]
    dummy_prefix: bool


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read and check a tokenizer.model.

    Raises SourceError for a malformed file, VocabError for a kind that llama.cpp does not support.
    """
    try:
        data = files.read_plain(path, most_bytes=MAX_BYTES)
    except files.NoPlainFile as error:
        raise SourceError(f"{path}: {error}", "download the file again") from None
    except OSError as error:
        raise SourceError(
            f"{path}: {error.strerror}", "check the path and its permissions"
        ) from None
    try:
        return _model(data)
    except (ValueError, struct.error, IndexError) as error:
        raise SourceError(
            f"{path}: not a SentencePiece model ({error})", "download the file again"
        ) from None


def _model(data: bytes) -> SentencePieceModel:
    pieces, trainer, normalizer = [], b"", b""
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_as_bytes(value)))
        elif number == 2:
            trainer = _as_bytes(value)
        elif number == 3:
            normalizer = _as_bytes(value)
    if not pieces:
        raise ValueError("it holds no pieces")
    kind = dict(_fields(trainer)).get(3, 1)
    if kind != _BPE:
        name = _MODEL_TYPES.get(kind, str(kind)) if isinstance(kind, int) else "?"
        raise VocabError(
            f"tokenizer.model is a SentencePiece {name} model; only bpe models can be carried over"
        )
    settings = dict(_fields(normalizer))
    if settings.get(2):
        raise VocabError(
            "tokenizer.model normalises text with its own table, which llama.cpp's "
            "vocabulary cannot hold"
        )
    if settings.get(4, 1):
        raise VocabError(
            "tokenizer.model removes extra whitespace, which llama.cpp's vocabulary does not"
        )
    if not settings.get(5, 1) or dict(_fields(trainer)).get(24, 0):
        raise VocabError(
            "tokenizer.model marks spaces in a way that llama.cpp's vocabulary does not"
        )
    return SentencePieceModel(tuple(pieces), bool(settings.get(3, 1)))


def _piece(data: bytes) -> Piece:
    values = dict(_fields(data))
    kind = values.get(3, NORMAL)
    if not isinstance(kind, int) or not NORMAL <= kind <= BYTE:
        raise ValueError(f"piece of unknown type {kind!r}")
    score = values.get(2, 0.0)
    if not isinstance(score, float):
        raise ValueError("a score is not a float")
    return Piece(_as_bytes(values.get(1, b"")).decode("utf-8"), score, kind)


def _as_bytes(value: int | float | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field is not a message")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """(field number, value) of one message in order; 4-byte values are read as floats.

    Raises ValueError, IndexError.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: int | float | bytes
        if number == 0:
            raise ValueError("field number 0")
        if wire == _VARINT:
            value, position = _varint(data, position)
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if length > len(data) - position:
                raise ValueError(f"a field of {length} bytes runs past the end")
            value, position = data[position : position + length], position + length
        elif wire == _FIXED32:
            value, position = struct.unpack_from("<f", data, position)[0], position + 4
        elif wire == _FIXED64:
            value, position = struct.unpack_from("<d", data, position)[0], position + 8
        else:
            raise ValueError(f"unknown wire type {wire}")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number of more than 64 bits")
