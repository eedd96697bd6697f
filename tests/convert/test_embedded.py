"""The embedded smith through the same path: its weights, in Hugging Face's form, give its file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from convert.llama import expected_shapes, gguf_name, pair_order
from convert.pretokenizer import KNOWN
from convert.sentencepiece import CONTROL, UNUSED
from tests.cli.runner import kmint
from tests.convert.reference_models import save

ROOT = Path(__file__).parents[2]
(SHIPPED,) = (ROOT / "kmint_tui" / "smith" / "embedded").glob("*.gguf")
# Keys that name a conversion itself.
OWN = {"general.name", "general.size_label", "kmint.base_sha256", "kmint.version"}


@pytest.fixture(scope="module")
def reader() -> Any:
    return gguf.GGUFReader(SHIPPED)


@pytest.fixture(scope="module")
def folders(reader: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a training run and of a tokenizer, made of the shipped file alone.

    `forge.export` takes them.
    """
    run, tokenizer = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("tokenizer")
    facts = {name: field.contents() for name, field in reader.fields.items()}
    config = write_config(run, facts)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    save(
        run / "model.safetensors",
        {name: original(name, config, stored) for name in expected_shapes(config)},
        "F32",
    )
    write_tokenizer(tokenizer, facts)
    return run, tokenizer


def write_config(run: Path, facts: dict[str, Any]) -> dict[str, Any]:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.attention.key_length"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "vocab_size": facts["llama.vocab_size"],
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }
    (run / "config.json").write_text(json.dumps(config))
    return config


def original(name: str, config: dict[str, Any], stored: dict[str, Any]) -> npt.NDArray[np.float32]:
    """A shipped tensor, dequantised and back in Hugging Face's order of rows."""
    tensor = stored[gguf_name(name)]
    values: npt.NDArray[np.float32] = gguf.quants.dequantize(
        tensor.data, tensor.tensor_type
    ).astype(np.float32)
    if "q_proj" in name or "k_proj" in name:
        values[pair_order(config["num_attention_heads"], config["head_dim"])] = values.copy()
    return values


def write_tokenizer(folder: Path, facts: dict[str, Any]) -> None:
    tokens, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    (known,) = (entry for entry in KNOWN if entry.name == facts["tokenizer.ggml.pre"])
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in known.patterns
    ]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    plain = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    special = [number for number, kind in enumerate(types) if kind == CONTROL]
    document = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": tokens[number], **plain} for number in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, level]},
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {
                text: number for number, text in enumerate(tokens) if types[number] != UNUSED
            },
            "merges": facts["tokenizer.ggml.merges"],
            "ignore_merges": known.ignore_merges,
        },
    }
    named = {
        f"{kind}_token": tokens[facts[f"tokenizer.ggml.{key}_token_id"]]
        for kind, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**named, "add_bos_token": facts["tokenizer.ggml.add_bos_token"]})
    )
    (folder / "chat_template.jinja").write_text(facts["tokenizer.chat_template"])


def test_exporting_again_gives_the_shipped_file(
    reader: Any, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """`forge.export`: every tensor byte for byte, and every key except those of the conversion
    itself.
    """
    out = tmp_path / "again.gguf"
    command = [
        sys.executable,
        "-m",
        "forge.export",
        *map(str, folders),
        str(out),
        "--level",
        "tokenizer",
        "--folder",
        str(tmp_path / "hf"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "structure: pass" in done.stdout and "tokenizer: pass" in done.stdout
    again = gguf.GGUFReader(out)
    assert [(tensor.name, tensor.tensor_type) for tensor in again.tensors] == [
        (t.name, t.tensor_type) for t in reader.tensors
    ]
    for ours, shipped in zip(again.tensors, reader.tensors, strict=True):
        assert np.array_equal(ours.data, shipped.data), ours.name
    first, second = (
        {name: field.contents() for name, field in file.fields.items() if "GGUF." not in name}
        for file in (reader, again)
    )
    assert {
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    } <= OWN


def test_kmint_convert_proves_its_logits(folders: tuple[Path, Path], tmp_path: Path) -> None:
    run, tokenizer = folders
    base = tmp_path / "base"
    base.mkdir()
    for path in (*run.iterdir(), *tokenizer.iterdir()):
        (base / path.name).symlink_to(path)
    done = kmint(
        "convert",
        "--base",
        str(base),
        "--quant",
        "F32",
        "--verify",
        "logits",
        "--out",
        str(tmp_path / "m.gguf"),
        "--json",
    )
    assert done.code == 0, done.err
    findings = {finding["level"]: finding for finding in done.document["files"][0]["findings"]}
    assert [finding["status"] for finding in findings.values()] == ["pass", "pass", "pass"]
    assert (
        findings["logits"]["figures"]["mean_kl"] < 1e-6
        and findings["logits"]["figures"]["top1"] == 1.0
    )
