"""SentencePiece vocabularies: from tokenizer.model and merges, proven, refused if not faithful."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convert.checks import CORPUS
from convert.errors import ConvertError, SourceError, VocabError
from convert.job import ConvertJob
from convert.read_vocab import read_vocab
from convert.request import ConvertRequest
from convert.sentencepiece import USER_DEFINED, read_sentencepiece
from convert.special_tokens import TokenizerHome
from convert.verify import gguf_ids
from tests.convert.reference_models import CASES, FIXTURES, VOCAB, write

MODEL = FIXTURES / "sentencepiece" / "tokenizer.model"
RECORDED = json.loads((FIXTURES / "sentencepiece_ids.json").read_text(encoding="utf-8"))


def home(folder: Path) -> TokenizerHome:
    return TokenizerHome.of(folder, None)


def converted(name: str, folder: Path) -> tuple[Path, dict[str, str]]:
    write(CASES[name], folder)
    with ConvertJob(
        ConvertRequest(base=folder / "base", out=folder / "m.gguf", kinds=("F16",))
    ) as job:
        (report,) = job.run()
    return folder / "m.gguf", {finding.level: finding.status for finding in report.findings}


def test_llama_cpp_encodes_as_sentencepiece_does(tmp_path: Path) -> None:
    """The recorded ids of the sentencepiece package, except for texts with added tokens."""
    assert RECORDED["texts"] == list(CORPUS)
    path, _ = converted("llama-sentencepiece", tmp_path)
    plain = [index for index, text in enumerate(CORPUS) if "<|" not in text]
    ids = gguf_ids(path, [CORPUS[index] for index in plain])
    assert ids == [RECORDED["ids"][index] for index in plain]
    assert len(plain) == 4 and sum(len(part) for part in ids) > 300


def test_scores_from_merges_encode_as_tokenizers_does(tmp_path: Path) -> None:
    path, levels = converted("llama-byte-fallback", tmp_path)
    assert levels == {"structure": "pass", "tokenizer": "pass"}
    assert len(gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].data) == VOCAB


def test_equal_scores_would_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference converter's scores (-1000 everywhere) fail the proof."""
    from convert import job

    def flat(folder: TokenizerHome, size: int, *, pre: str | None = None) -> Any:
        vocab = read_vocab(folder, size, pre=pre)
        vocab.metadata["tokenizer.ggml.scores"] = [-1000.0] * size
        return vocab

    monkeypatch.setattr(job, "read_vocab", flat)
    with pytest.raises(
        ConvertError, match="cannot be carried over: \\d+ of \\d+ texts encode differently"
    ):
        converted("llama-byte-fallback", tmp_path)


def test_both_files_give_the_same_tokens(tmp_path: Path) -> None:
    """tokenizer.model next to tokenizer.json: scores of one, added tokens and space of the other."""
    for name in ("sentencepiece", "byte_fallback"):
        shutil.copytree(FIXTURES / name, tmp_path, dirs_exist_ok=True)
    both = read_vocab(home(tmp_path), VOCAB)
    alone = read_vocab(home(FIXTURES / "byte_fallback"), VOCAB)
    assert both.notes[0].startswith("SentencePiece vocabulary: scores from tokenizer.model")
    for key in ("tokens", "token_type"):
        assert both.metadata[f"tokenizer.ggml.{key}"] == alone.metadata[f"tokenizer.ggml.{key}"]


def test_the_model_file_is_read() -> None:
    model = read_sentencepiece(MODEL)
    assert [piece.text for piece in model.pieces[:4]] == ["<unk>", "<s>", "</s>", "<sep>"]
    assert model.pieces[3].kind == USER_DEFINED and model.dummy_prefix
    assert len(model.pieces) == VOCAB - 8


def document(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        (FIXTURES / "byte_fallback" / "tokenizer.json").read_text(encoding="utf-8")
    )
    return {**made, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {
                "normalizer": None,
                "pre_tokenizer": {
                    "type": "Metaspace",
                    "replacement": "\u2581",
                    "prepend_scheme": "first",
                    "split": False,
                },
            },
            "prepend_scheme first",
        ),
        ({"normalizer": {"type": "NFKC"}}, "normalizer and pre_tokenizer"),
        (
            {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": None},
            "normalizer and pre_tokenizer",
        ),
    ],
)
def test_a_leading_space_that_llama_cpp_cannot_do_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document(**changes)))
    with pytest.raises(VocabError, match=said):
        read_vocab(home(tmp_path), VOCAB)


def test_merges_out_of_order_are_refused(tmp_path: Path) -> None:
    made = document()
    made["model"]["merges"].append(made["model"]["merges"][0])
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(VocabError, match="does not follow from scores"):
        read_vocab(home(tmp_path), VOCAB)


def test_a_missing_merge_is_refused(tmp_path: Path) -> None:
    made = document()
    made["model"]["merges"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(VocabError, match="does not follow from scores"):
        read_vocab(home(tmp_path), VOCAB)


@pytest.mark.parametrize(
    "damage", [{"merges": ["a b c"]}, {"merges": 3}, {"vocab": {"a": "b"}}, {"vocab": {"a": 7}}]
)
def test_malformed_files_are_named(damage: dict[str, Any], tmp_path: Path) -> None:
    made = document()
    made["model"] |= damage
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(VocabError, match="malformed|gaps"):
        read_vocab(home(tmp_path), VOCAB)


def test_too_many_tokens_and_missing_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabError, match="does not fit in vocab_size 100"):
        read_vocab(home(FIXTURES / "sentencepiece"), 100)
    (tmp_path / "tokenizer.model").write_bytes(MODEL.read_bytes().replace(b"<0x41>", b"<0x4x>"))
    with pytest.raises(VocabError, match="no <0x41> token"):
        read_vocab(home(tmp_path), VOCAB)


def field(number: int, payload: bytes | int) -> bytes:
    return (
        bytes([number << 3, payload])
        if isinstance(payload, int)
        else bytes([number << 3 | 2, len(payload)]) + payload
    )


@pytest.mark.parametrize(
    ("trainer", "normalizer", "said"),
    [
        (field(3, 1), b"", "SentencePiece unigram model"),
        (field(3, 2), field(2, b"table"), "its own table"),
        (field(3, 2), field(4, 1), "removes extra whitespace"),
        (field(3, 2), field(4, 0) + field(5, 0), "marks spaces"),
    ],
)
def test_models_that_llama_cpp_would_misread_are_refused(
    trainer: bytes, normalizer: bytes, said: str, tmp_path: Path
) -> None:
    piece = field(1, b"a") + bytes([2 << 3 | 5]) + struct.pack("<f", -1.0)
    (tmp_path / "tokenizer.model").write_bytes(
        field(1, piece) + field(2, trainer) + field(3, normalizer)
    )
    with pytest.raises(VocabError, match=said):
        read_sentencepiece(tmp_path / "tokenizer.model")


@given(st.binary(max_size=200), st.integers(0, 6000), st.integers(0, 255))
def test_damaged_models_are_refused_without_a_crash(noise: bytes, position: int, byte: int) -> None:
    """Noise, and the real file with a changed byte or a cut: read, or refused as a conversion
    error.
    """
    whole = MODEL.read_bytes()
    for data in (noise, whole[:position] + bytes([byte]) + whole[position + 1 :], whole[:position]):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(SourceError, VocabError):
                read_sentencepiece(Path(file.name))
