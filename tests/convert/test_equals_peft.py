"""A converted file is PEFT's model: logits within 1e-4 of their scale, and every greedy token.

Each case is an adapter as PEFT or a trainer saves it. `test_refusals.py` has the cases that cannot
be equal.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from tests.convert import checkpoints
from tests.convert.peft_cases import SMALL, loaded, move, require_agreement, train

TOKENS = [3, 17, 300]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "all-linear": {"target_modules": "all-linear"},
    "regex": {"target_modules": r".*\.(q_proj|up_proj)"},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True, "target_modules": ALL},
    "patterns": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.1.mlp.down_proj": 3}},
    "one-layer": {"layers_to_transform": [1]},
    "excluded": {"exclude_modules": ["model.layers.0.self_attn.q_proj"]},
    "gaussian": {"init_lora_weights": "gaussian"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "norm": {"modules_to_save": ["norm"]},
    "head": {"modules_to_save": ["lm_head"]},
    "embedding": {"modules_to_save": ["embed_tokens"]},
    "both": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "lora-embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "lora-head": {"target_modules": ["q_proj", "lm_head"]},
    "tokens": {"trainable_token_indices": TOKENS},
    "tokens-by-module": {"trainable_token_indices": {"embed_tokens": TOKENS, "lm_head": [4]}},
}
TIED: dict[str, dict[str, Any]] = {
    "plain": {},
    "head": {"modules_to_save": ["lm_head"]},
    "embedding": {"modules_to_save": ["embed_tokens"]},
    "both": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "lora-embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "lora-head": {"target_modules": ["q_proj", "lm_head"]},
    "tokens": {"trainable_token_indices": TOKENS},
    "kept-tied": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "lora-kept-tied": {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_equals_peft(name: str, tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", **SMALL)
    train(model, tmp_path / "adapter", ADAPTERS[name])
    require_agreement(tmp_path / "base", tmp_path / "adapter")


@pytest.mark.sweep
@pytest.mark.parametrize("name", TIED)
def test_an_adapter_over_a_tied_model_equals_peft(name: str, tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", tie_word_embeddings=True, **SMALL)
    train(model, tmp_path / "adapter", TIED[name])
    found = require_agreement(tmp_path / "base", tmp_path / "adapter")
    separated = any("head" in note for note in found.notes)
    assert separated == (name not in ("plain", "tokens"))


@pytest.mark.parametrize("tied", [False, True])
def test_biases_that_were_trained(tied: bool, tmp_path: Path) -> None:
    model = checkpoints.llama(
        tmp_path / "base", attention_bias=True, tie_word_embeddings=tied, **SMALL
    )
    train(model, tmp_path / "adapter", {"bias": "all"})
    require_agreement(tmp_path / "base", tmp_path / "adapter")


def test_a_bias_of_lora_b(tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", attention_bias=True, **SMALL)
    train(model, tmp_path / "adapter", {"lora_bias": True, "target_modules": ["o_proj"]})
    require_agreement(tmp_path / "base", tmp_path / "adapter")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_adapter_in_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", **SMALL)
    train(model, tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({name: value.to(dtype) for name, value in load_file(path).items()}, path)
    require_agreement(tmp_path / "base", tmp_path / "adapter")


def test_a_base_in_shards(tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", **SMALL)
    train(checkpoints.llama(tmp_path / "again", **SMALL), tmp_path / "adapter")
    (tmp_path / "base" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "base", max_shard_size="100KB")
    assert len(list((tmp_path / "base").glob("*.safetensors"))) > 3
    require_agreement(tmp_path / "base", tmp_path / "adapter")


WRAPPED: dict[str, Callable[[str], str]] = {
    "adapter-name": lambda key: key.replace(".lora_A.", ".lora_A.default.").replace(
        ".lora_B.", ".lora_B.default."
    ),
    "compiled": lambda key: key.replace("base_model.model.", "base_model.model._orig_mod.", 1),
    "compiled-outside": lambda key: f"_orig_mod.{key}",
    "data-parallel": lambda key: f"module.{key}",
    "fsdp": lambda key: key.replace(".mlp.", "._fsdp_wrapped_module.mlp.").replace(
        ".self_attn.", "._fsdp_wrapped_module.self_attn."
    ),
    "checkpointed": lambda key: key.replace(".layers.0.", ".layers.0._checkpoint_wrapped_module."),
    "no-prefix": lambda key: key.removeprefix("base_model.model."),
}


@pytest.mark.sweep
@pytest.mark.parametrize("wrapper", WRAPPED)
def test_names_that_wrappers_leave_in_keys(wrapper: str, tmp_path: Path) -> None:
    model = checkpoints.llama(tmp_path / "base", **SMALL)
    train(model, tmp_path / "adapter")
    reference = loaded(tmp_path / "base", tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    stored = load_file(path)
    renamed = {WRAPPED[wrapper](key): value for key, value in stored.items()}
    assert set(renamed) != set(stored)
    save_file(renamed, path)
    require_agreement(tmp_path / "base", tmp_path / "adapter", reference)


RESIZED: dict[str, tuple[bool, dict[str, Any]]] = {
    "both": (False, {"modules_to_save": ["embed_tokens", "lm_head"]}),
    "tied": (True, {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
    "tied-tokens": (True, {"trainable_token_indices": [3, 515]}),
    "whole-layers": (False, {"target_modules": ["q_proj"]}),
}


@pytest.mark.parametrize("layout", ["plain", "wrapped"])
@pytest.mark.parametrize("name", RESIZED)
def test_a_resized_vocabulary_in_its_layouts(name: str, layout: str, tmp_path: Path) -> None:
    """PEFT's own layout, and a state dict's with the modules' full names."""
    tied, settings = RESIZED[name]
    model = checkpoints.llama(tmp_path / "base", tie_word_embeddings=tied, **SMALL)
    model.resize_token_embeddings(520, mean_resizing=False)
    wrapped = train(model, tmp_path / "adapter", settings, save_embedding_layers=True)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    if layout == "wrapped":
        kept = ("embed_tokens", "lm_head")
        state = {
            key: value.clone()
            for key, value in wrapped.state_dict().items()
            if any(part in key for part in kept)
        }
        stored = {
            key: value
            for key, value in load_file(path).items()
            if not any(part in key for part in kept)
        }
        save_file(stored | state, path)
    require_agreement(tmp_path / "base", tmp_path / "adapter", wrapped)


@pytest.mark.parametrize("way", ["pissa", "olora"])
def test_an_initialisation_that_peft_converted(way: str, tmp_path: Path) -> None:
    """PEFT can save such an adapter as one over the unchanged base, of twice the rank."""
    checkpoints.llama(tmp_path / "base", **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = loaded(tmp_path / "base", None)
        wrapped = get_peft_model(
            model,
            LoraConfig(
                r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=way
            ),
        )
        wrapped.peft_config["default"].init_lora_weights = True
        wrapped.save_pretrained(tmp_path / "start")
        wrapped.peft_config["default"].init_lora_weights = way
        move(wrapped)
        wrapped.save_pretrained(
            tmp_path / "adapter", path_initial_model_for_weight_conversion=str(tmp_path / "start")
        )
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["r"] == 8
    require_agreement(tmp_path / "base", tmp_path / "adapter", wrapped)


ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 1e4,
    },
    "attention-factor": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 1e4,
        "attention_factor": 1.7,
    },
    "mscale": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 1e4,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    "betas": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 1e4,
        "beta_fast": 8.0,
        "beta_slow": 2.0,
    },
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ROPES)
def test_rope_settings_equal_transformers(name: str, tmp_path: Path) -> None:
    checkpoints.llama(tmp_path / "base", rope_parameters=ROPES[name], **SMALL)
    require_agreement(tmp_path / "base", None)
