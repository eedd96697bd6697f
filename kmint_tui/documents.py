"""Writes JSON and TOML strictly, and reads it within limits of memory, time and stack.

Written documents hold no NaN and no infinities. The reader refuses documents that are too long,
nested too deeply, or of too many values, and numbers beyond 64 bits. Every refusal is a
`BadDocument` with a reason of one line.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert import files

MAX_BYTES = 16 << 20
"""Bytes of a JSON document, unless a reader sets another limit."""
MAX_TOML_BYTES = 1 << 20
MAX_VALUES = 2_000_000
MAX_DEPTH = 100
MAX_INTEGER_BITS = 64
MAX_KEY_PARTS = 32

# Python's parser takes time that grows with the square of a key's parts.
_LONG_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_KEY_PARTS}}}"""
)
_STRUCTURE = ("[", "{", ",")
_MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class BadDocument(ValueError):
    """A text that is no document within the limits of this module; the message is the reason."""


def finite(value: Any) -> Any:
    """`value` in plain mappings and sequences, with null for numbers that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def rounded(value: Any) -> Any:
    """The value with hundredths in place of longer fractions, in every mapping within it."""
    if isinstance(value, Mapping):
        return {name: rounded(one) for name, one in value.items()}
    return round(value, 2) if isinstance(value, float) else value


def compact(value: Any) -> str:
    """`value` as one line of JSON."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_json(text: str | bytes, *, most_bytes: int = MAX_BYTES) -> Any:
    """A JSON document in UTF-8: plain dicts, lists, texts, finite numbers. Raises BadDocument."""
    content = _decoded(text, most_bytes)
    # The count comes before parsing, so it includes marks inside texts.
    if sum(map(content.count, _STRUCTURE)) > MAX_VALUES:
        raise BadDocument(f"it holds more than {MAX_VALUES:,} values")
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except RecursionError:
        raise BadDocument(_too_deep()) from None
    except ValueError as error:
        raise BadDocument(_not_json(content, error)) from None
    _check_values(found)
    if _MAYBE_HALF.search(content):
        _check_whole_characters(found)
    return found


def parse_toml(text: str | bytes, *, most_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """A TOML document in UTF-8. Raises BadDocument."""
    content = _decoded(text, most_bytes)
    if _LONG_KEY.search(content):
        raise BadDocument(f"a key has more than {MAX_KEY_PARTS} parts")
    try:
        found = tomllib.loads(content)
    except RecursionError:
        raise BadDocument(_too_deep()) from None
    except ValueError as error:
        raise BadDocument(f"it is not TOML: {error}") from None
    _check_values(found)
    return found


def read_json(path: Path, *, most_bytes: int = MAX_BYTES) -> Any:
    """The JSON document in a file. Raises BadDocument, or OSError if it cannot be read."""
    return parse_json(read_bytes(path, most_bytes=most_bytes), most_bytes=most_bytes)


def read_toml(path: Path, *, most_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """The TOML document in a file. Raises BadDocument, or OSError if it cannot be read."""
    return parse_toml(read_bytes(path, most_bytes=most_bytes), most_bytes=most_bytes)


def read_bytes(path: Path, *, most_bytes: int) -> bytes:
    """The content of a regular file.

    Raises BadDocument for a file of another kind or of more than `most_bytes` bytes, and OSError.
    """
    try:
        return files.read_plain(path, most_bytes=most_bytes)
    except files.NoPlainFile as error:
        raise BadDocument(str(error)) from None


def _decoded(text: str | bytes, most_bytes: int) -> str:
    _check_size(len(text), most_bytes)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadDocument(f"it is not UTF-8 text (byte {error.start})") from None


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise BadDocument(f"it is longer than {most_bytes >> 10:,} KiB")


def _too_deep() -> str:
    return f"it is nested more than {MAX_DEPTH} levels deep"


def _not_json(content: str, error: ValueError) -> str:
    if content.lstrip()[:1] == "<":
        return "it is a web page and not JSON: a proxy or a sign-in page may have answered"
    return f"it is not JSON: {error}"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _check_whole_characters(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BadDocument("it holds half of a character, which no encoding can write") from None


def _check_values(document: Any) -> None:
    """Raises BadDocument for deep nesting, and for numbers beyond 64 bits."""
    level = [document]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, float) and not math.isfinite(value):
                raise BadDocument("it holds a number that is not finite")
            elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
                raise BadDocument(f"it holds an integer of more than {MAX_INTEGER_BITS} bits")
        if not inner:
            return
        level = inner
    raise BadDocument(_too_deep())
