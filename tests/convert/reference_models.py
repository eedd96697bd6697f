"""Checkpoints and adapters with the same bytes on every machine, to compare with llama.cpp's
output.

Weights come from SHAKE-256 of the tensor's name, without any library's random numbers. They use 24
bits, so that every smaller type rounds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FIXTURES = Path(__file__).parent / "fixtures"
VOCAB = 440
TYPES = ("F32", "F16", "BF16", "Q8_0")

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    # Not a multiple of 32: down_proj cannot be Q8_0.
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
    },
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WITHOUT_HEAD_DIM = {key: value for key, value in _LLAMA.items() if key != "head_dim"}
_QWEN2: dict[str, Any] = {
    **_WITHOUT_HEAD_DIM,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "sliding_window": 32768,
    "use_sliding_window": False,
    "max_window_layers": 21,
}
_QWEN3: dict[str, Any] = {
    **_LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
}
_MISTRAL: dict[str, Any] = {
    **_LLAMA,
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "sliding_window": None,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@dataclass(frozen=True)
class Case:
    """A checkpoint by its config.

    `tokenizer` names a folder of fixtures, `adapter` holds the settings of a LoRA over it.
    """

    config: Mapping[str, Any]
    types: tuple[str, ...] = ("F16",)
    tokenizer: str = "bpe"
    dtype: str = "F32"
    adapter: Mapping[str, Any] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    "llama": Case(_LLAMA, TYPES),
    "llama-bf16": Case(_LLAMA, ("F16", "BF16"), dtype="BF16"),
    "llama-tied-llama3": Case(
        {
            **{key: value for key, value in _LLAMA.items() if key != "rope_theta"},
            "tie_word_embeddings": True,
            "rope_parameters": {**_LLAMA3, "original_max_position_embeddings": 64},
        }
    ),
    "llama-linear-bias": Case(
        {**_LLAMA, "attention_bias": True, "rope_scaling": {"type": "linear", "factor": 2.0}}
    ),
    "llama-yarn": Case(
        {
            **_LLAMA,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 128,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "attention_factor": 1.1,
            },
        }
    ),
    "llama-sentencepiece": Case(_LLAMA, tokenizer="sentencepiece"),
    "llama-byte-fallback": Case(_LLAMA, tokenizer="byte_fallback"),
    "qwen35": Case(_QWEN, TYPES),
    "qwen35-vision-mtp": Case(
        {
            **{key: _QWEN[key] for key in ("tie_word_embeddings", "bos_token_id", "eos_token_id")},
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "text_config": {**_QWEN, "mtp_num_hidden_layers": 1},
            "vision_config": {"depth": 1, "hidden_size": 16},
        },
        dtype="BF16",
    ),
    "qwen2": Case(_QWEN2, TYPES),
    "qwen2-tied": Case({**_QWEN2, "tie_word_embeddings": True}),
    "qwen3": Case(_QWEN3, TYPES),
    "qwen3-tied-yarn": Case(
        {
            **_QWEN3,
            "tie_word_embeddings": True,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        },
        dtype="BF16",
    ),
    "mistral": Case(_MISTRAL, TYPES),
    "qwen2-adapter": Case(_QWEN2, ("F32",), adapter={"r": 4, "lora_alpha": 8}),
    "qwen3-adapter": Case(_QWEN3, ("F32",), adapter={"r": 4, "lora_alpha": 8}),
    "mistral-adapter": Case(_MISTRAL, ("F32",), adapter={"r": 4, "lora_alpha": 8}),
    "llama-adapter": Case(_LLAMA, ("F32", "F16"), adapter={"r": 4, "lora_alpha": 8}),
    "qwen35-adapter": Case(_QWEN, ("F32", "F16"), adapter={"r": 8, "lora_alpha": 8}),
}


def write(case: Case, folder: Path) -> None:
    """Write the checkpoint to `folder`/base and its adapter, if any, to `folder`/adapter."""
    base = folder / "base"
    base.mkdir(parents=True)
    (base / "config.json").write_text(json.dumps(case.config))
    shutil.copytree(FIXTURES / case.tokenizer, base, dirs_exist_ok=True)
    save(
        base / "model.safetensors",
        {name: values(name, shape) for name, shape in tensors(case.config).items()},
        case.dtype,
    )
    if case.adapter:
        (folder / "adapter").mkdir()
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(base),
            **case.adapter,
        }
        (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
        save(folder / "adapter" / "adapter_model.safetensors", adapter_tensors(case), "F32")


def tensors(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint with this config."""
    text = config.get("text_config", config)
    prefix = "model.language_model." if "text_config" in config else "model."
    hidden = text["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens.weight": (text["vocab_size"], hidden),
        f"{prefix}norm.weight": (hidden,),
    }
    for layer in range(text["num_hidden_layers"]):
        shapes |= {
            f"{prefix}layers.{layer}.{name}": shape for name, shape in _layer(text, layer).items()
        }
    if not text["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (text["vocab_size"], hidden)
    if "text_config" in config:
        shapes |= {
            "model.visual.patch_embed.proj.weight": (16, 4),
            "mtp.fc.weight": (hidden, 2 * hidden),
            "mtp.norm.weight": (hidden,),
        }
    return shapes


def _layer(text: Mapping[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    hidden, ffn = text["hidden_size"], text["intermediate_size"]
    head_dim = text.get("head_dim", hidden // text["num_attention_heads"])
    queries, groups = text["num_attention_heads"] * head_dim, text["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if text.get("layer_types", {layer: ""})[layer] == "linear_attention":
        keys, heads = (
            text["linear_num_key_heads"] * text["linear_key_head_dim"],
            text["linear_num_value_heads"],
        )
        rows, dim = heads * text["linear_value_head_dim"], text["linear_value_head_dim"]
        return shapes | {
            "linear_attn.in_proj_qkv.weight": (2 * keys + rows, hidden),
            "linear_attn.in_proj_z.weight": (rows, hidden),
            "linear_attn.in_proj_a.weight": (heads, hidden),
            "linear_attn.in_proj_b.weight": (heads, hidden),
            "linear_attn.A_log": (heads,),
            "linear_attn.dt_bias": (heads,),
            "linear_attn.conv1d.weight": (2 * keys + rows, 1, text["linear_conv_kernel_dim"]),
            "linear_attn.norm.weight": (dim,),
            "linear_attn.out_proj.weight": (hidden, rows),
        }
    qwen = "layer_types" in text
    shapes |= {
        "self_attn.q_proj.weight": ((2 if qwen else 1) * queries, hidden),
        "self_attn.k_proj.weight": (groups, hidden),
        "self_attn.v_proj.weight": (groups, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
    }
    if qwen or text["model_type"] == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    if text["model_type"] == "qwen2":
        shapes |= {
            f"self_attn.{name}_proj.bias": (shapes[f"self_attn.{name}_proj.weight"][0],)
            for name in "qkv"
        }
    if text.get("attention_bias"):
        shapes |= {
            f"self_attn.{name}_proj.bias": (shapes[f"self_attn.{name}_proj.weight"][0],)
            for name in "qkvo"
        }
    return shapes


def adapter_tensors(case: Case) -> dict[str, npt.NDArray[np.float32]]:
    """lora_A and lora_B for every matrix inside the layers."""
    made = {}
    rank = case.adapter["r"]
    for name, shape in tensors(case.config).items():
        if ".layers." in name and len(shape) == 2:
            key = "base_model.model." + name.removesuffix(".weight")
            made[f"{key}.lora_A.weight"] = values(f"{key}.lora_A", (rank, shape[1]))
            made[f"{key}.lora_B.weight"] = values(f"{key}.lora_B", (shape[0], rank))
    return made


def values(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Numbers in [-0.25, 0.25) with 24 significant bits; around 1 for weights of norms."""
    count = int(np.prod(shape))
    drawn = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), dtype="<u4") >> 8
    made = ((drawn.astype(np.float64) - 2.0**23) / 2.0**25).astype(np.float32)
    return (made + np.float32("norm" in name)).reshape(shape)


def save(path: Path, arrays: Mapping[str, npt.NDArray[np.float32]], dtype: str) -> None:
    """A safetensors file of F32, or of BF16 by cutting off the low bits."""
    header, data, start = {}, [], 0
    for name, array in arrays.items():
        raw = (
            array.tobytes()
            if dtype == "F32"
            else (array.view(np.uint32) >> 16).astype("<u2").tobytes()
        )
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [start, start + len(raw)],
        }
        data.append(raw)
        start += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
