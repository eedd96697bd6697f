"""Whole conversions of tiny checkpoints, proven at every level by llama.cpp and transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from convert.errors import ConvertError, VerifyError
from convert.job import ConvertJob
from convert.request import ConvertRequest, Level
from convert.verify import Proof, verify_structure
from tests.convert import checkpoints


@pytest.fixture(scope="module")
def llama_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("llama")
    checkpoints.adapter(checkpoints.llama(folder / "base"), folder / "adapter")
    return folder / "base", folder / "adapter"


@pytest.fixture(scope="module")
def qwen_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("qwen")
    checkpoints.adapter(checkpoints.qwen35(folder / "base"), folder / "adapter")
    return folder / "base", folder / "adapter"


def convert(
    pair: tuple[Path, Path | None], out: Path, *kinds: str, level: Level = "tokenizer", **more: Any
) -> tuple[dict[str, Proof], ...]:
    with ConvertJob(
        ConvertRequest(
            base=pair[0], out=out, kinds=kinds, adapter=pair[1], level=level, version="test", **more
        )
    ) as job:
        return tuple(
            {finding.level: finding for finding in report.findings} for report in job.run()
        )


@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_merged_logits_equal_transformers_and_peft(
    family: str, llama_pair: tuple[Path, Path], qwen_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    pair = llama_pair if family == "llama" else qwen_pair
    (findings,) = convert(pair, tmp_path / "m.gguf", "F32", level="logits")
    assert {level: finding.status for level, finding in findings.items()} == {
        "structure": "pass",
        "tokenizer": "pass",
        "logits": "pass",
    }
    assert findings["logits"].figures["max_difference"] < 1e-3
    assert findings["logits"].figures["tokens"] > 100


def test_the_adapter_changes_the_logits(llama_pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Without its adapter the file must fail the comparison; otherwise the comparison proves
    nothing.
    """
    convert((llama_pair[0], None), tmp_path / "base.gguf", "F32")
    with ConvertJob(
        ConvertRequest(
            base=llama_pair[0],
            out=tmp_path / "x.gguf",
            kinds=("F32",),
            adapter=llama_pair[1],
            level="structure",
        )
    ) as job:
        (finding,) = job.verify(tmp_path / "base.gguf")
    assert finding.status == "fail"


@pytest.mark.sweep
@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": True},
        {"attention_bias": True},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ],
    ids=["tied", "bias", "linear", "llama3", "yarn"],
)
def test_llama_settings_carry_over(settings: dict[str, Any], tmp_path: Path) -> None:
    checkpoints.llama(tmp_path / "base", **settings)
    (findings,) = convert((tmp_path / "base", None), tmp_path / "m.gguf", "F32", level="logits")
    assert findings["logits"].status == "pass", findings["logits"].detail


def test_several_types_and_their_reports(llama_pair: tuple[Path, Path], tmp_path: Path) -> None:
    findings = convert(llama_pair, tmp_path / "m.gguf", "Q4_K_M", "F16", "Q8_0", level="full")
    divergence = [item["quantisation"].figures["mean_kl"] for item in (findings[0], findings[2])]
    assert divergence[0] > divergence[1] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"m-{kind}.gguf{tail}"
        for kind in ("Q4_K_M", "F16", "Q8_0")
        for tail in ("", ".report.json")
    )
    report = json.loads((tmp_path / "m-Q4_K_M.gguf.report.json").read_text())
    assert report["schema"] == "kmint.convert/1"
    assert "Q4_K" in report["notes"][0]
    fields = gguf.GGUFReader(tmp_path / "m-Q8_0.gguf").fields
    assert len(fields["kmint.adapter_sha256"].contents()) == 64
    assert fields["tokenizer.chat_template"].contents() == checkpoints.TEMPLATE


def test_the_plan_writes_nothing_and_predicts_the_size(
    llama_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    with ConvertJob(
        ConvertRequest(
            base=llama_pair[0], out=tmp_path / "m.gguf", kinds=("Q8_0",), adapter=llama_pair[1]
        )
    ) as job:
        plan = job.plan()
        assert list(tmp_path.iterdir()) == []
        (report,) = job.run()
    assert len(plan.touched) == 14
    assert "model.layers.0.self_attn.q_proj.weight" in plan.touched
    assert abs(report.bytes - plan.files[str(tmp_path / "m.gguf")]) < 100_000


def test_a_failing_reference_is_reported_and_proves_nothing(tmp_path: Path) -> None:
    checkpoints.llama(tmp_path / "base")
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    (tmp_path / "base" / "config.json").write_text(
        json.dumps({**config, "model_type": "nothing_known"})
    )
    (findings,) = convert((tmp_path / "base", None), tmp_path / "m.gguf", "F32", level="logits")
    assert findings["logits"].status == "skipped"
    assert "nothing_known" in findings["logits"].detail


def test_an_endless_expression_of_an_adapter_ends(
    llama_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEFT matches `target_modules` itself, in the process of the reference."""
    shutil.copytree(llama_pair[1], tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    document = json.loads(file.read_text()) | {"target_modules": r"([\w.]|[\w.]|[\w.])*!"}
    file.write_text(json.dumps(document | {"megatron_config": {"a": 1}, "megatron_core": "this"}))
    monkeypatch.setattr("convert.checks.ADAPTER_SECONDS", 3)
    pair = (llama_pair[0], tmp_path / "adapter")
    (findings,) = convert(pair, tmp_path / "m.gguf", "F32", level="logits")
    assert "does not load within 3 s" in findings["logits"].detail


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_K_M"])
def test_rows_in_another_order_are_noticed_at_every_type(
    kind: str, llama_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    with ConvertJob(
        ConvertRequest(
            base=llama_pair[0], out=tmp_path / "m.gguf", kinds=(kind,), level="structure"
        )
    ) as job:
        job.run()
        finding = verify_structure(
            tmp_path / "m.gguf", job.recipe, lambda name, rows: job.merged.rows(name, rows)[::-1]
        )
    assert finding.status == "fail" and finding.figures["error"] > 0.9


def test_a_failed_proof_removes_the_file(
    llama_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convert import write

    original = write._encode
    monkeypatch.setattr(
        write, "_encode", lambda rule, piece, kind: original(rule, np.flip(piece, axis=0), kind)
    )
    with pytest.raises(VerifyError, match="structure"):
        convert(llama_pair, tmp_path / "m.gguf", "F32")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_shard_and_an_unknown_architecture_are_named(
    llama_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    checkpoints.llama(tmp_path / "base")
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    (tmp_path / "base" / "config.json").write_text(
        json.dumps({**config, "architectures": ["OtherForCausalLM"]})
    )
    with pytest.raises(ConvertError, match="OtherForCausalLM"):
        convert((tmp_path / "base", None), tmp_path / "m.gguf", "F32")
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(ConvertError, match="model.safetensors"):
        convert((tmp_path / "base", None), tmp_path / "m.gguf", "F32")


def test_a_truncated_shard_is_refused(tmp_path: Path) -> None:
    checkpoints.llama(tmp_path / "base")
    path = tmp_path / "base" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ConvertError, match="ends at byte"):
        convert((tmp_path / "base", None), tmp_path / "m.gguf", "F32")
