"""The proof of a tokenizer: NFC text, added tokens, the adapter's tokenizer, lists of end tokens."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import gguf
import pytest

from convert import checks
from convert.checks import proof_texts
from convert.errors import ConvertError
from convert.job import ConvertJob
from convert.probe_texts import probe_texts
from convert.request import ConvertRequest
from convert.verify import gguf_ids, verify_tokenizer
from tests.convert import reference_models

NFC = {"type": "NFC"}
FIRST = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def base(folder: Path, case: str = "llama") -> Path:
    reference_models.write(reference_models.CASES[case], folder)
    return folder / "base"


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def converted(folder: Path, adapter: Path | None = None) -> tuple[Path, tuple[str, ...]]:
    request = ConvertRequest(
        base=folder, out=folder.parent / "m.gguf", kinds=("F16",), adapter=adapter, version="test"
    )
    with ConvertJob(request) as job:
        (report,) = job.run()
    assert {finding.status for finding in report.findings} == {"pass"}
    return request.out, report.notes


def test_the_texts_are_many_short_and_the_same_again(tmp_path: Path) -> None:
    with ConvertJob(
        ConvertRequest(base=base(tmp_path), out=tmp_path / "m.gguf", kinds=("F16",))
    ) as job:
        texts, again = probe_texts(job.vocab.metadata), probe_texts(job.vocab.metadata)
    assert texts == again
    assert 600 < len(texts) < 2000 and max(map(len, texts)) < 120
    for part in ("1234567890123", "\r\n", "東京", "🚀", "<=", "don't", "\u0301"):
        assert any(part in text for text in texts), part


def test_nfc_is_carried_over_and_said(tmp_path: Path) -> None:
    folder = base(tmp_path)
    edit(folder / "tokenizer.json", normalizer=NFC)
    path, notes = converted(folder)
    assert any("NFC" in note for note in notes)
    with ConvertJob(
        ConvertRequest(base=folder, out=tmp_path / "again.gguf", kinds=("F16",))
    ) as job:
        texts = proof_texts(job.vocab)
    assert all(unicodedata.is_normalized("NFC", text) for text in texts)
    # The two read other text in different ways, as the note says.
    assert gguf_ids(path, ["e\u0301"]) != gguf_ids(path, ["\u00e9"])


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_K_M"])
def test_the_vocabulary_is_proven_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the tensors; the finished file holds the same bytes, also when llama.cpp wrote it."""
    proven = []

    def counting(path: Path, folder: Path, texts: Any) -> Any:
        proven.append(path.name)
        return verify_tokenizer(path, folder, texts)

    monkeypatch.setattr(checks, "verify_tokenizer", counting)
    with ConvertJob(
        ConvertRequest(base=base(tmp_path), out=tmp_path / "m.gguf", kinds=(kind,))
    ) as job:
        (report,) = job.run()
        assert proven == ["vocabulary.gguf"]
        assert [finding.status for finding in report.findings] == ["pass", "pass"]
        job.verify(tmp_path / "m.gguf")
    assert proven == ["vocabulary.gguf", "m.gguf"]


def with_added(folder: Path, target: Path, text: str, **flags: bool) -> int:
    """Write the tokenizer of `folder` into `target` with one more token; returns its id."""
    document = json.loads((folder / "tokenizer.json").read_text())
    number: int = 1 + max(
        [*document["model"]["vocab"].values(), *(token["id"] for token in document["added_tokens"])]
    )
    document["added_tokens"].append(
        {**PLAIN, "id": number, "content": text, "special": True, **flags}
    )
    target.mkdir(exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(document))
    return number


def test_the_adapter_brings_its_tokenizer_and_template(tmp_path: Path) -> None:
    folder = base(tmp_path, "llama-adapter")
    adapter = tmp_path / "adapter"
    number = with_added(folder, adapter, "<|tool|>")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (adapter / "tokenizer_config.json").write_text(
        json.dumps({**config, "chat_template": "{{ 'mine' }}"})
    )
    path, notes = converted(folder, adapter)
    assert any("adapter's folder" in note for note in notes)
    assert gguf_ids(path, ["a<|tool|>"])[0][-1] == number
    assert gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents() == "{{ 'mine' }}"


def test_the_bases_template_completes_the_adapters_tokenizer(tmp_path: Path) -> None:
    folder = base(tmp_path, "llama-adapter")
    with_added(folder, tmp_path / "adapter", "<|tool|>")
    path, _ = converted(folder, tmp_path / "adapter")
    expected = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents() == expected


def test_an_added_token_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    """The token takes the blank before it along; llama.cpp does not."""
    folder = base(tmp_path)
    with_added(folder, folder, "<call>", lstrip=True, special=False)
    with pytest.raises(ConvertError, match="encode differently"):
        converted(folder)


def test_ends_that_only_the_config_lists(tmp_path: Path) -> None:
    folder = base(tmp_path)
    (folder / "tokenizer_config.json").unlink()
    edit(folder / "config.json", eos_token_id=[2, 3])
    path, _ = converted(folder)
    fields = gguf.GGUFReader(path).fields
    ids = [fields[f"tokenizer.ggml.{name}_token_id"].contents() for name in ("eos", "eot")]
    assert ids == [2, 3]


@pytest.mark.parametrize("beside", [False, True], ids=["json", "with-model"])
def test_a_space_before_the_first_piece_alone(beside: bool, tmp_path: Path) -> None:
    folder = base(tmp_path, "llama-byte-fallback")
    edit(folder / "tokenizer.json", normalizer=None, pre_tokenizer=FIRST)
    if beside:
        model = reference_models.FIXTURES / "sentencepiece" / "tokenizer.model"
        (folder / "tokenizer.model").write_bytes(model.read_bytes())
    _, notes = converted(folder)
    assert any("prepend_scheme first" in note for note in notes)


def test_texts_of_one_length_are_for_training(tmp_path: Path) -> None:
    """A tokenizer.json may cut and fill texts; transformers does neither by default."""
    folder = base(tmp_path)
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    fill = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<s>",
    }
    edit(folder / "tokenizer.json", truncation=cut, padding=fill)
    converted(folder)


def test_two_tokens_of_one_text_are_refused(tmp_path: Path) -> None:
    """llama.cpp ends its process over them."""
    folder = base(tmp_path)
    with_added(folder, folder, "<tool>")
    with pytest.raises(ConvertError, match="'<tool>' is the text of the tokens 432 and 433"):
        converted(folder)
