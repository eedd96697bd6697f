"""A stranger's tokenizer.json holds regular expressions: encoding with it has limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convert import reference_tokenizer
from convert.errors import VocabError
from convert.reference_tokenizer import encode
from tests.convert import reference_models

TEXT = "a" * 3000


@pytest.fixture
def base(tmp_path: Path) -> Path:
    reference_models.write(reference_models.CASES["llama-adapter"], tmp_path)
    return tmp_path / "base"


def test_a_sound_tokenizer_encodes_in_its_child(base: Path) -> None:
    """The ids are those of the library in this process."""
    from tokenizers import Tokenizer

    expected = (
        Tokenizer.from_file(str(base / "tokenizer.json"))
        .encode("def run(x):", add_special_tokens=False)
        .ids
    )
    assert encode(base, ["def run(x):"]).ids == (tuple(expected),)


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)+$", "(?=(a+)+b)"])
def test_an_endless_expression_is_given_up(
    base: Path, expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library stops some of them itself; the others end at the child's limit."""
    monkeypatch.setattr(reference_tokenizer, "SECONDS", 1)
    path = base / "tokenizer.json"
    document = json.loads(path.read_text())
    document["normalizer"] = {"type": "Replace", "pattern": {"Regex": expression}, "content": "b"}
    path.write_text(json.dumps(document))
    with pytest.raises(VocabError, match="cannot encode a text"):
        encode(base, [TEXT + "b" * 30] * 50)


def test_a_damaged_tokenizer_is_named(base: Path) -> None:
    """The library's own message names the error."""
    (base / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(VocabError, match="cannot encode a text"):
        encode(base, ["x"])
