"""kmint's GGUFs against those of llama.cpp's own converter, by tensor and key.

`record_reference.py` records the latter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from convert.job import ConvertJob
from convert.request import ConvertRequest
from tests.convert.gguf_digest import digest
from tests.convert.reference_models import CASES, FIXTURES, write

RECORDED = json.loads((FIXTURES / "reference.json").read_text(encoding="utf-8"))["cases"]
WHOLE = [(name, kind) for name, case in CASES.items() for kind in case.types if not case.adapter]
# Keys that differ on purpose, with the reason.
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "llama-yarn": {
        "llama.rope.scaling.yarn_attn_factor": "llama.cpp overwrites it when YaRN is on",
        "llama.rope.scaling.attn_factor": "the share of the attention factor that llama.cpp does not add itself",
    },
    "llama-sentencepiece": {
        "tokenizer.ggml.add_space_prefix": "said outright; the reference leaves it to llama.cpp's default",
        "tokenizer.ggml.unknown_token_id": "tokenizer_config.json names it; the reference looks for it in tokenizer.json only",
        "tokenizer.ggml.token_type": "user-defined pieces are marked so, else llama.cpp never finds <sep> in a text",
    },
    "llama-byte-fallback": {
        "tokenizer.ggml.add_space_prefix": "as above",
        "tokenizer.ggml.add_sep_token": "kmint encodes no pairs of texts",
        "tokenizer.ggml.scores": "from the merges; the reference scores every token -1000, which merges from left to right",
        "tokenizer.ggml.tokens": "padded to the size of the embedding; without it llama.cpp refuses the file",
        "tokenizer.ggml.token_type": "padded, and <sep> is user-defined",
    },
}


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_equals_the_reference(name: str, kind: str, tmp_path: Path) -> None:
    write(CASES[name], tmp_path)
    with ConvertJob(
        ConvertRequest(
            base=tmp_path / "base",
            out=tmp_path / "m.gguf",
            kinds=(kind,),
            level="structure",
            version="test",
        )
    ) as job:
        job.run()
    ours, theirs = digest(tmp_path / "m.gguf"), RECORDED[name][kind]
    assert ours["metadata"].pop("kmint.base_sha256")
    assert ours["metadata"].pop("kmint.version") == ["STRING", "test"]
    assert differing(ours["metadata"], theirs["metadata"]) == set(DIFFERENCES.get(name, {}))
    same_tensors(ours["tensors"], theirs["tensors"])


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> set[str]:
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


def same_tensors(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, (kind, shape, content) in theirs.items():
        assert ours[name][:2] == [kind, shape], name
        if isinstance(content, list):
            # exp and powers may differ in the last bit from machine to machine.
            assert ours[name][2] == pytest.approx(content, rel=3e-7), name
        else:
            assert ours[name][2] == content, name
