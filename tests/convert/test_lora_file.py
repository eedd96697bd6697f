"""Adapters written alone: equal to llama.cpp's own script, and at run time to a merged file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert.errors import AdapterError, ConvertError, SourceError
from convert.job import ConvertJob
from convert.lora_job import LoraJob, base_of
from convert.request import ConvertRequest
from convert.verify import compare_logits, gguf_logits
from tests.convert import checkpoints, reference_models
from tests.convert.gguf_digest import digest
from tests.convert.test_reference import RECORDED, differing, same_tensors

PROMPTS = ((1, 7, 30, 99, 200, 201, 5, 44, 300, 12, 8), (3, 3, 3, 250, 17))
LINEAR = ["in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, case in reference_models.CASES.items()
        for kind in case.types
        if case.adapter
    ],
)
def test_equals_the_reference(name: str, kind: str, tmp_path: Path) -> None:
    reference_models.write(reference_models.CASES[name], tmp_path)
    (tmp_path / "base" / "model.safetensors").unlink()
    request = ConvertRequest(
        base=tmp_path / "base",
        out=tmp_path / "a.gguf",
        kinds=(kind,),
        adapter=tmp_path / "adapter",
        version="test",
    )
    with LoraJob(request) as job:
        (report,) = job.run()
    assert [finding.status for finding in report.findings] == ["pass", "skipped"]
    ours, theirs = digest(tmp_path / "a.gguf"), RECORDED[name][kind]
    same_tensors(ours["tensors"], theirs["tensors"])
    extra = {"kmint.version", "kmint.adapter_sha256", "general.file_type"}
    assert differing(ours["metadata"], theirs["metadata"]) == extra | {"general.name"}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {}),
        (
            "llama",
            {
                "use_rslora": True,
                "rank_pattern": {"q_proj": 2},
                "alpha_pattern": {"v_proj": 3, "down_proj": 20},
            },
        ),
        ("llama", {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
        (
            "qwen35",
            {
                "target_modules": [
                    *LINEAR,
                    "q_proj",
                    "k_proj",
                    "v_proj",
                    "o_proj",
                    "gate_proj",
                    "up_proj",
                    "down_proj",
                ]
            },
        ),
    ],
    ids=["llama", "patterns", "embedding", "qwen35"],
)
def test_run_time_equals_merged(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """llama.cpp with base and adapter gives the logits of the merged file, and not those of the
    base.
    """
    model = (
        checkpoints.llama(tmp_path / "base")
        if family == "llama"
        else checkpoints.qwen35(tmp_path / "base")
    )
    checkpoints.adapter(model, tmp_path / "adapter", **settings)
    base, merged, alone = (tmp_path / f"{name}.gguf" for name in ("base", "merged", "alone"))
    with ConvertJob(
        ConvertRequest(base=tmp_path / "base", out=base, kinds=("F32",), level="structure")
    ) as job:
        job.run()
    with ConvertJob(
        ConvertRequest(
            base=tmp_path / "base",
            out=merged,
            kinds=("F32",),
            adapter=tmp_path / "adapter",
            level="structure",
        )
    ) as job:
        job.run()
    with LoraJob(
        ConvertRequest(
            base=tmp_path / "base",
            out=alone,
            kinds=("F32",),
            adapter=tmp_path / "adapter",
            level="structure",
        )
    ) as lora:
        lora.run()
    expected = gguf_logits(merged, PROMPTS)
    finding = compare_logits(
        "run time",
        gguf_logits(base, PROMPTS, adapter=alone),
        expected,
        max_difference=2e-3,
        max_kl=1e-7,
    )
    assert finding.status == "pass", finding.detail
    assert np.abs(gguf_logits(base, PROMPTS) - expected).max() > 0.1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"trainable_token_indices": [3, 17]}, "trainable_token_indices"),
        ({"lora_bias": True, "target_modules": ["o_proj"]}, "lora_bias"),
    ],
)
def test_what_the_file_cannot_carry_is_refused_by_name(
    settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    bias = "lora_bias" in settings
    checkpoints.adapter(
        checkpoints.llama(tmp_path / "base", attention_bias=bias), tmp_path / "adapter", **settings
    )
    with pytest.raises(AdapterError, match=named) as caught:
        LoraJob(
            ConvertRequest(
                base=tmp_path / "base",
                out=tmp_path / "a.gguf",
                kinds=("F16",),
                adapter=tmp_path / "adapter",
            )
        )
    assert "merge it into its base" in caught.value.fix


def test_an_embedding_that_is_also_the_head_is_refused(tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", tie_word_embeddings=True)
    checkpoints.adapter(model, tmp_path / "adapter", target_modules=["q_proj", "embed_tokens"])
    with pytest.raises(AdapterError, match="tied"):
        LoraJob(
            ConvertRequest(
                base=tmp_path / "base",
                out=tmp_path / "a.gguf",
                kinds=("F16",),
                adapter=tmp_path / "adapter",
            )
        )


def test_the_base_is_found_from_the_adapter(tmp_path: Path) -> None:
    reference_models.write(reference_models.CASES["llama-adapter"], tmp_path)
    adapter, config = tmp_path / "adapter", (tmp_path / "base" / "config.json").read_text()
    assert base_of(adapter) == tmp_path / "base"
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(SourceError, match="which shapes its base"):
        base_of(adapter)
    (adapter / "config.json").write_text(config)
    assert base_of(adapter) == adapter


def test_the_plan_predicts_and_types_are_checked(tmp_path: Path) -> None:
    reference_models.write(reference_models.CASES["llama-adapter"], tmp_path)
    request = ConvertRequest(
        base=tmp_path / "base",
        out=tmp_path / "a.gguf",
        kinds=("F16",),
        adapter=tmp_path / "adapter",
    )
    with LoraJob(request) as job:
        plan = job.plan()
        assert (plan.tensors, len(plan.touched)) == (28, 14) and not request.out.exists()
        (report,) = job.run()
        assert 0 <= report.bytes - plan.disk < 5_000
        assert (
            json.loads((tmp_path / "a.gguf.report.json").read_text())["findings"][0]["status"]
            == "pass"
        )
    for kinds in (("Q8_0",), ("F16", "F32"), ("nonsense",)):
        with pytest.raises(ConvertError, match="an adapter is written as"):
            LoraJob(
                ConvertRequest(
                    base=tmp_path / "base",
                    out=tmp_path / "a.gguf",
                    kinds=kinds,
                    adapter=tmp_path / "adapter",
                )
            )
