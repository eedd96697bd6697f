"""Files of a stranger's checkpoint that are not regular, or hold too much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from convert import files
from convert.errors import SourceError
from convert.json_text import MOST_VALUES, parse_json
from convert.read_vocab import read_vocab
from convert.safetensors_file import parse_header
from convert.sentencepiece import read_sentencepiece
from convert.source import read_config
from convert.special_tokens import LARGEST_TEMPLATE, TokenizerHome

MANY = b"[" + b"[]," * MOST_VALUES + b"1]"


@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "/dev/full"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, target: str) -> None:
    """Reading a pipe would wait for its writer; reading /dev/zero would fill the memory."""
    for name in ("config.json", "tokenizer.model"):
        if target == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to(target)
    with pytest.raises(SourceError, match="not a regular file"):
        read_config(tmp_path)
    with pytest.raises(SourceError, match="not a regular file"):
        read_sentencepiece(tmp_path / "tokenizer.model")


def test_a_file_longer_than_its_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    os.truncate(tmp_path / "config.json", 8 << 30)
    with pytest.raises(SourceError, match="longer than"):
        read_config(tmp_path)
    with pytest.raises(files.NoPlainFile, match="longer than 1 KiB"):
        files.read_plain(tmp_path / "config.json", most_bytes=1 << 10)


def test_a_long_chat_template_is_refused(tmp_path: Path) -> None:
    from convert.special_tokens import _chat_template

    (tmp_path / "chat_template.jinja").touch()
    os.truncate(tmp_path / "chat_template.jinja", LARGEST_TEMPLATE + 1)
    with pytest.raises(files.NoPlainFile, match="longer than"):
        _chat_template(tmp_path, {})


def test_json_of_too_many_values_or_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 4,000,000 values"):
        parse_json(MANY)
    with pytest.raises(ValueError, match="too deeply"):
        parse_json(b"[" * 100_000)
    with pytest.raises(SourceError, match="more than 4,000,000 values"):
        parse_header(MANY, 8, 1 << 40, "m.safetensors")
    assert parse_json(b'{"a": [1, "x"]}') == {"a": [1, "x"]}


@pytest.mark.parametrize(
    "text", ["9" * 400, "-" + "9" * 41, "NaN", "Infinity", "-1e999", "9" * 5000]
)
def test_numbers_that_no_machine_word_holds_are_refused(tmp_path: Path, text: str) -> None:
    """Such an `lora_alpha` ended the conversion with an internal error."""
    (tmp_path / "config.json").write_text(f'{{"lora_alpha": {text}}}')
    with pytest.raises(SourceError, match="digits|not finite"):
        read_config(tmp_path)
    assert parse_json(b"[18446744073709551615, -1, 1e308]") == [2**64 - 1, -1, 1e308]


def test_a_deep_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"model":' * 20_000)
    with pytest.raises(SourceError, match="too deeply"):
        read_vocab(TokenizerHome.of(tmp_path, None), 8)
