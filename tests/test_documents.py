"""Documents are read within bounds: each text that breaks one is refused in one line, fast and in
little memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kmint_tui.documents import (
    MAX_DEPTH,
    BadDocument,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_toml,
)

BAD_JSON = {
    "deep": ("[" * 100_000, "nested more than 100 levels"),
    "deep objects": ('{"a":' * 5000 + "1" + "}" * 5000, "nested more than 100 levels"),
    "one level too deep": (
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "nested more than 100 levels",
    ),
    "a web page": ("\n<!DOCTYPE html><html><body>Sign in</body></html>", "a web page"),
    "not a number": ("[NaN]", "NaN is no JSON number"),
    "infinite": ('{"ratio": 1e999}', "not finite"),
    "a long integer": ("9" * 5000, "not JSON"),
    "a wide integer": ("[" + "9" * 50 + "]", "more than 64 bits"),
    "many values": ("[" + "[]," * 1_000_000 + "1]", "more than 2,000,000 values"),
    "empty": ("", "not JSON"),
    "half of a character": (r'{"a": ["\ud83d"]}', "half of a character"),
    "half of a character in a key": (r'{"\udc00": 1}', "half of a character"),
    "Latin-1": (b'"\xe9"', "not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
}
BAD_TOML = {
    "deep": ("a = " + "[" * 100_000, "nested more than 100 levels"),
    "deep tables": ("a = " + "{a = " * 5000, "nested more than 100 levels"),
    "deep keys": (
        "\n".join(f"[{'.'.join('abcdefgh' * 3)}.{number}]" for number in range(3))
        + "\na="
        + "[" * 90
        + "]" * 90,
        "nested",
    ),
    "a long key": ("a." * 300_000 + "a = 1", "more than 32 parts"),
    "a long quoted key": ("\"a b\" . 'c'." * 50_000 + "a = 1", "more than 32 parts"),
    "a long integer": ("a = " + "9" * 5000, "not TOML"),
    "a wide integer": ("a = 0x" + "f" * 5000, "more than 64 bits"),
    "infinite": ("a = inf", "not finite"),
    "too long": ("#" * (2 << 20), "longer than 1,024 KiB"),
}


@pytest.mark.parametrize(("text", "reason"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_is_refused_in_one_line(text: str | bytes, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason) as refused:
        parse_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "reason"), BAD_TOML.values(), ids=BAD_TOML)
def test_bad_toml_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason) as refused:
        parse_toml(text)
    assert "\n" not in str(refused.value)


def test_what_is_within_the_bounds_is_read() -> None:
    assert parse_json('{"a": [1, 2.5, null, "\\u00e9\\ud83d\\udc4d"]}') == {
        "a": [1, 2.5, None, "é👍"]
    }
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_toml("[a.b]\n'c.d' = 'https://a.b.c/d.e'  # " + "." * 100) == {
        "a": {"b": {"c.d": "https://a.b.c/d.e"}}
    }


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    """A pipe that no process writes to would be waited for, for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"[" + b" " * 100 + b"]")
    for name in ("pipe", "."):
        for read in (read_json, read_toml):
            with pytest.raises(BadDocument, match="not a regular file"):
                read(tmp_path / name)
    with pytest.raises(BadDocument, match="longer than"):
        read_bytes(tmp_path / "large", most_bytes=50)
    assert read_json(tmp_path / "large") == []
