"""Qwen2, Qwen3 and Mistral against transformers: tied, untied, in shards, with every adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from convert.errors import ArchitectureError
from convert.job import ConvertJob
from convert.lora_job import LoraJob
from convert.request import ConvertRequest
from convert.verify import gguf_logits
from tests.convert import checkpoints
from tests.convert.peft_cases import PROMPTS, require_agreement, train

SIZES: dict[str, Any] = {
    "vocab_size": checkpoints.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
# Qwen2.5-1.5B, Qwen3-1.7B and Mistral-7B-v0.3, made small, with their published computation.
FAMILIES: dict[str, Any] = {
    "qwen2": lambda **more: Qwen2ForCausalLM(
        Qwen2Config(
            **SIZES,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            sliding_window=32768,
            use_sliding_window=False,
            max_window_layers=21,
            **more,
        )
    ),
    "qwen3": lambda **more: Qwen3ForCausalLM(
        Qwen3Config(
            **SIZES,
            head_dim=32,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            **more,
        )
    ),
    "mistral": lambda **more: MistralForCausalLM(
        MistralConfig(
            **SIZES,
            head_dim=32,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            sliding_window=None,
            **more,
        )
    ),
}
ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {"target_modules": "all-linear"},
    "rslora": {"target_modules": ["q_proj", "k_proj", "up_proj"], "use_rslora": True},
    "dora": {"target_modules": ["q_proj", "k_proj", "down_proj"], "use_dora": True},
}


def model(family: str, folder: Path, **more: Any) -> PreTrainedModel:
    return checkpoints._save(folder, FAMILIES[family](**more))


@pytest.mark.sweep
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_base_in_shards_equals_transformers(family: str, tied: bool, tmp_path: Path) -> None:
    made = model(family, tmp_path / "base", tie_word_embeddings=tied)
    (tmp_path / "base" / "model.safetensors").unlink()
    made.save_pretrained(tmp_path / "base", max_shard_size="100KB")
    require_agreement(tmp_path / "base", None)


@pytest.mark.sweep
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_equals_peft(family: str, adapter: str, tmp_path: Path) -> None:
    train(
        model(family, tmp_path / "base", tie_word_embeddings=adapter == "lora"),
        tmp_path / "adapter",
        ADAPTERS[adapter],
    )
    require_agreement(tmp_path / "base", tmp_path / "adapter")


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_alone_is_worth_as_much(family: str, tmp_path: Path) -> None:
    train(
        model(family, tmp_path / "base"),
        tmp_path / "adapter",
        {"target_modules": ["q_proj", "k_proj", "o_proj", "up_proj"]},
    )
    base, merged, alone = (tmp_path / f"{name}.gguf" for name in ("base", "merged", "alone"))
    for out, adapter in ((base, None), (merged, tmp_path / "adapter")):
        with ConvertJob(
            ConvertRequest(
                base=tmp_path / "base", out=out, kinds=("F32",), adapter=adapter, level="structure"
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
    together, expected = gguf_logits(base, PROMPTS, adapter=alone), gguf_logits(merged, PROMPTS)
    assert abs(together - expected).max() < 1e-4 * abs(expected).max()


@pytest.mark.parametrize(
    ("family", "changes", "context"),
    [
        ("mistral", {"sliding_window": 128}, 128),
        ("qwen2", {"sliding_window": 128}, 512),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": True}, 128),
    ],
)
def test_a_sliding_window_bounds_the_context(
    family: str, changes: dict[str, Any], context: int, tmp_path: Path
) -> None:
    """llama.cpp reads the whole context, so the two agree as long as the window holds it."""
    model(family, tmp_path / "base")
    path = tmp_path / "base" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with ConvertJob(
        ConvertRequest(
            base=tmp_path / "base", out=tmp_path / "m.gguf", kinds=("F16",), level="structure"
        )
    ) as job:
        job.run()
    name = "qwen2" if family == "qwen2" else "llama"
    assert (
        gguf.GGUFReader(tmp_path / "m.gguf").fields[f"{name}.context_length"].contents() == context
    )


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("qwen3", {"attention_bias": True}, "no place in the qwen3 architecture"),
        ("qwen2", {"head_dim": 32}, "do not make 64 columns"),
        ("qwen3", {"num_key_value_heads": None}, "num_key_value_heads is None"),
        ("mistral", {"hidden_act": "gelu"}, "computes silu only"),
        ("qwen3", {"architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM"),
    ],
)
def test_what_these_architectures_cannot_hold(
    family: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    model(
        family,
        tmp_path / "base",
        **({"attention_bias": True} if "attention_bias" in changes else {}),
    )
    path = tmp_path / "base" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ArchitectureError, match=said):
        ConvertJob(ConvertRequest(base=tmp_path / "base", out=tmp_path / "m.gguf", kinds=("F16",)))
