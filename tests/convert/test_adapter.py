"""kmint's streamed merge against PEFT's `merge_and_unload` in float32, for every adapter feature."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils.other import get_pattern_key
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from convert import patterns
from convert.adapter import Adapter
from convert.adapter_config import parse_adapter_config
from convert.errors import AdapterError, ConvertError
from convert.merge import Merged
from convert.source import Source

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "patterns": {
        "rank_pattern": {"q_proj": 2, "layers.1.mlp.up_proj": 6},
        "alpha_pattern": {"v_proj": 3},
    },
    "fan_in_fan_out": {"fan_in_fan_out": True},
    "lora_bias": {"lora_bias": True, "target_modules": ["o_proj"]},
    "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "head": {"modules_to_save": ["lm_head"]},
    "tokens": {"trainable_token_indices": [3, 17, 90]},
}


def make_base(folder: Path, *, tied: bool = False, bias: bool = False) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tied,
        attention_bias=bias,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)


def make_adapter(base: Path, folder: Path, **settings: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Save a randomised adapter and return PEFT's own merged weights, without PEFT's warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _make_adapter(base, folder, **settings)


def _make_adapter(base: Path, folder: Path, **settings: Any) -> dict[str, np.ndarray[Any, Any]]:
    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    wrapped = get_peft_model(
        model,
        LoraConfig(
            **{"r": 4, "lora_alpha": 8, "target_modules": ALL, "task_type": "CAUSAL_LM", **settings}
        ),
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    wrapped.save_pretrained(folder)
    return {name: value.numpy() for name, value in wrapped.merge_and_unload().state_dict().items()}


@pytest.mark.parametrize("feature", FEATURES)
def test_merge_equals_peft(feature: str, tmp_path: Path) -> None:
    make_base(tmp_path / "base", bias=feature == "lora_bias")
    expected = make_adapter(tmp_path / "base", tmp_path / "adapter", **FEATURES[feature])
    changed = 0
    with (
        Source(tmp_path / "base") as source,
        Adapter(tmp_path / "adapter", source.names, source.shape) as adapter,
    ):
        merged = Merged(source, adapter)
        assert merged.names == set(expected)
        for name in sorted(merged.names):
            count = merged.shape(name)[0]
            pieces = [
                merged.rows(name, np.arange(first, min(first + 7, count)))
                for first in range(0, count, 7)
            ]
            np.testing.assert_allclose(
                np.concatenate(pieces), expected[name], rtol=2e-5, atol=2e-6, err_msg=name
            )
            changed += not np.array_equal(np.concatenate(pieces), source.rows(name))
    assert changed >= 1


def test_scale_of_a_pattern_is_taken_per_module() -> None:
    parsed = parse_adapter_config(
        {
            "peft_type": "LORA",
            "r": 8,
            "lora_alpha": 16,
            "alpha_pattern": {"q_proj": 4},
            "use_rslora": True,
        }
    )
    query, value = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"
    config = parsed.for_modules((query, value))
    assert config.scale(query, 8) == pytest.approx(4 / 8**0.5)
    assert config.scale(value, 8) == pytest.approx(16 / 8**0.5)


@pytest.mark.parametrize("key", ["rank_pattern", "alpha_pattern"])
def test_patterns_are_matched_as_peft_matches_them(key: str) -> None:
    """Whole names, ends of names, and regular expressions; the first match counts."""
    modules = [
        f"model.layers.{layer}.mlp.{name}" for layer in (1, 11) for name in ("up_proj", "down_proj")
    ]
    named = {r"layers\.1\.mlp\.up_proj": 2, "up_proj": 3, r"layers\.1[0-9]\..*": 4, "proj": 5}
    parsed = parse_adapter_config({"peft_type": "LORA", "r": 8, "lora_alpha": 16, key: named})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [named.get(get_pattern_key(named, module)) for module in modules]
    config = parsed.for_modules(modules)
    found = config.ranks if key == "rank_pattern" else config.alphas
    assert [found.get(module) for module in modules] == expected == [2, None, 3, 4]


@pytest.mark.parametrize(
    ("key", "pattern"), [("rank_pattern", "(.*)*x(.*)*(.*)*(.*)*1"), ("alpha_pattern", "(a|a)*b")]
)
def test_an_endless_pattern_is_given_up(
    key: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These patterns would run for ever on a long name."""
    monkeypatch.setattr(patterns, "SECONDS", 1)
    parsed = parse_adapter_config({"peft_type": "LORA", "r": 8, "lora_alpha": 8, key: {pattern: 2}})
    with pytest.raises(AdapterError, match=f"matching {key} failed: it takes more than 1 s"):
        parsed.for_modules(["a" * 5000])


def test_a_pattern_that_fills_the_memory_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the pattern takes a hundred times its length."""
    monkeypatch.setattr(patterns, "MEMORY_BYTES", 100 << 20)
    parsed = parse_adapter_config(
        {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "rank_pattern": {"ab" * 500_000: 2}}
    )
    with pytest.raises(AdapterError, match="it takes more than 100 MiB"):
        parsed.for_modules(["q_proj"])


def test_a_pattern_that_is_none_is_named() -> None:
    """The child compiles the pattern and reports the error."""
    parsed = parse_adapter_config(
        {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "rank_pattern": {"(": 2}}
    )
    with pytest.raises(AdapterError, match="invalid pattern"):
        parsed.for_modules(["model.q_proj"])


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"peft_type": "LOHA", "r": 8, "lora_alpha": 8}, "LOHA"),
        ({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "use_qalora": True}, "use_qalora"),
        (
            {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "layer_replication": [[0, 2]]},
            "layer_replication",
        ),
        ({"peft_type": "LORA", "r": 0, "lora_alpha": 8}, "r=0"),
        (
            {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "rank_pattern": {"q_proj": "2"}},
            "a positive number is needed",
        ),
        ({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "something_new": 1}, "something_new"),
    ],
)
def test_unknown_settings_are_refused_by_name(document: dict[str, Any], said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        parse_adapter_config(document)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    make_base(tmp_path / "base")
    make_adapter(tmp_path / "base", tmp_path / "adapter")
    return tmp_path / "base", tmp_path / "adapter"


def _bind(base: Path, adapter: Path) -> None:
    with Source(base) as source, Adapter(adapter, source.names, source.shape):
        pass


def test_a_key_that_matches_nothing_is_an_error(pair: tuple[Path, Path]) -> None:
    base, adapter = pair
    weights = load_file(adapter / "adapter_model.safetensors")
    key = next(iter(sorted(weights)))
    weights[key.replace("layers.0", "layers.7")] = weights.pop(key)
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="match nothing"):
        _bind(base, adapter)


def test_a_shape_that_does_not_fit_is_an_error(pair: tuple[Path, Path]) -> None:
    base, adapter = pair
    weights = load_file(adapter / "adapter_model.safetensors")
    key = next(name for name in weights if name.endswith("lora_A.weight"))
    weights[key] = weights[key][:, :-1].contiguous()
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="do not fit"):
        _bind(base, adapter)


def test_half_an_adapter_is_an_error(pair: tuple[Path, Path]) -> None:
    base, adapter = pair
    weights = load_file(adapter / "adapter_model.safetensors")
    weights.pop(next(name for name in weights if name.endswith("lora_B.weight")))
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="do not fit"):
        _bind(base, adapter)


def test_a_rank_that_contradicts_the_config_is_an_error(pair: tuple[Path, Path]) -> None:
    base, adapter = pair
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "r": 5}))
    with pytest.raises(AdapterError, match="rank 4"):
        _bind(base, adapter)


def test_missing_files_are_named(pair: tuple[Path, Path]) -> None:
    base, adapter = pair
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ConvertError, match="adapter_model.safetensors"):
        _bind(base, adapter)
