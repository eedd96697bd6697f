"""Checkpoints and adapters in the real layouts of MiniCPM5-1B and Qwen3.6-27B, with made-up weights
and vocabulary.

Names, shapes, dtypes, shard index and adapter keys are the real ones; values are random normal
numbers. Shards are sparse files: only the tensors chosen by `real` hold bytes, the others read as
zeros and take no disk. The vocabulary is a byte-level BPE whose merges are random pairs, of any
size, so nothing has to be trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.fake_tokenizer import write_tokenizer

SPREAD = 0.02
_PIECE = 2**22
# The end of the number 1 in BF16 and in F32.
_ONE = b"\x80\x3f"

MINICPM5_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1536,
    "intermediate_size": 4608,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 5e6,
    "max_position_embeddings": 131072,
    "vocab_size": 130560,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}

QWEN36_27B_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
    },
    "max_position_embeddings": 262144,
    "vocab_size": 248320,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class FakeTensor:
    """One tensor of a shard; `dtype` is safetensors' word for it, BF16 or F32."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "BF16"

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * (2 if self.dtype == "BF16" else 4)


def llama_tensors(config: Mapping[str, Any]) -> list[FakeTensor]:
    """A LlamaForCausalLM checkpoint's tensors in order."""
    hidden, rows = config["hidden_size"], config["vocab_size"]
    tensors = [FakeTensor("model.embed_tokens.weight", (rows, hidden))]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors += [
            *(
                FakeTensor(f"{prefix}{name}.weight", shape)
                for name, shape in llama_projections(config).items()
            ),
            *(
                FakeTensor(f"{prefix}{name}.weight", (hidden,))
                for name in ("input_layernorm", "post_attention_layernorm")
            ),
        ]
    return [
        *tensors,
        FakeTensor("model.norm.weight", (hidden,)),
        FakeTensor("lm_head.weight", (rows, hidden)),
    ]


def llama_projections(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The linear projections of one Llama layer: name -> (out, in)."""
    hidden, ffn, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        **_mlp(hidden, ffn),
    }


def _mlp(hidden: int, ffn: int) -> dict[str, tuple[int, int]]:
    return {
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }


def qwen35_tensors(config: Mapping[str, Any]) -> list[FakeTensor]:
    """A Qwen3_5ForConditionalGeneration checkpoint's tensors in order, vision tower and MTP head
    included.
    """
    hidden, rows, top = config["hidden_size"], config["vocab_size"], "model.language_model."
    tensors = [
        FakeTensor("model.visual.blocks.0.mlp.linear_fc1.weight", (4304, 1152)),
        FakeTensor(f"{top}embed_tokens.weight", (rows, hidden)),
    ]
    for layer in range(config["num_hidden_layers"]):
        tensors += _qwen35_layer(
            config,
            f"{top}layers.{layer}.",
            full=(layer + 1) % config["full_attention_interval"] == 0,
        )
    tensors += [
        FakeTensor(f"{top}norm.weight", (hidden,)),
        FakeTensor("lm_head.weight", (rows, hidden)),
    ]
    return [
        *tensors,
        *_qwen35_layer(config, "mtp.layers.0.", full=True),
        FakeTensor("mtp.fc.weight", (hidden, 2 * hidden)),
    ]


def qwen35_projections(config: Mapping[str, Any], *, full: bool) -> dict[str, tuple[int, int]]:
    """The projections of one layer that a q/k/v/o/gate/up/down adapter touches: name -> (out, in)."""
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    attention = {
        "self_attn.q_proj": (2 * queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    return {**(attention if full else {}), **_mlp(hidden, config["intermediate_size"])}


def _qwen35_layer(config: Mapping[str, Any], prefix: str, *, full: bool) -> list[FakeTensor]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.weight": shape for name, shape in qwen35_projections(config, full=full).items()
    }
    shapes |= {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if full:
        shapes |= {
            "self_attn.q_norm.weight": (config["head_dim"],),
            "self_attn.k_norm.weight": (config["head_dim"],),
        }
    else:
        linear: dict[str, tuple[int, ...]] = {
            "in_proj_qkv.weight": (2 * keys + values, hidden),
            "in_proj_z.weight": (values, hidden),
            "in_proj_a.weight": (heads, hidden),
            "in_proj_b.weight": (heads, hidden),
            "conv1d.weight": (2 * keys + values, 1, config["linear_conv_kernel_dim"]),
            "A_log": (heads,),
            "dt_bias": (heads,),
            "norm.weight": (config["linear_value_head_dim"],),
            "out_proj.weight": (hidden, values),
        }
        shapes |= {f"linear_attn.{name}": shape for name, shape in linear.items()}
    return [FakeTensor(prefix + name, shape) for name, shape in shapes.items()]


def lora_tensors(modules: Mapping[str, tuple[int, int]], rank: int) -> list[FakeTensor]:
    """The A and B matrices, in float32 as PEFT saves them, of an adapter on `modules` (path ->
    (out, in)).
    """
    return [
        FakeTensor(f"base_model.model.{path}.lora_{side}.weight", shape, "F32")
        for path, (rows, columns) in modules.items()
        for side, shape in (("A", (rank, columns)), ("B", (rows, rank)))
    ]


def write_shards(
    folder: Path,
    tensors: Iterable[FakeTensor],
    shards: int,
    real: Callable[[FakeTensor], bool],
    seed: int = 0,
) -> None:
    """Spread tensors over `shards` files of about equal size, with an index when there is more than
    one.
    """
    tensors = list(tensors)
    share = sum(tensor.bytes for tensor in tensors) / shards
    groups: list[list[FakeTensor]] = [[] for _ in range(shards)]
    placed = 0
    for tensor in tensors:
        groups[min(int(placed / share), shards - 1)].append(tensor)
        placed += tensor.bytes
    names = [
        f"model-{number + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        for number in range(shards)
    ]
    for number, (name, group) in enumerate(zip(names, groups, strict=True)):
        write_safetensors(folder / name, group, real, seed + number)
    if shards > 1:
        index = {
            "metadata": {"total_size": placed},
            "weight_map": {t.name: name for name, g in zip(names, groups, strict=True) for t in g},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_safetensors(
    path: Path, tensors: Iterable[FakeTensor], real: Callable[[FakeTensor], bool], seed: int = 0
) -> None:
    """One file; tensors for which `real` is false stay holes, but for their last number."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts, end = {}, 0
    for tensor in tensors:
        starts[tensor] = end
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [end, end + tensor.bytes],
        }
        end += tensor.bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for tensor, start in starts.items():
            if real(tensor):
                file.seek(8 + len(text) + start)
                _write_values(file, tensor, generator)
            else:
                # A file that ended in zeros would be taken for a download that was cut short.
                file.seek(8 + len(text) + start + tensor.bytes - len(_ONE))
                file.write(_ONE)


def _write_values(file: Any, tensor: FakeTensor, generator: np.random.Generator) -> None:
    """Normal numbers; a norm's are around one."""
    left = int(np.prod(tensor.shape, dtype=np.int64))
    centre = np.float32(1 if tensor.name.endswith("norm.weight") else 0)
    while left:
        count = min(left, _PIECE)
        values = generator.standard_normal(count, dtype=np.float32) * np.float32(SPREAD) + centre
        if tensor.dtype == "BF16":
            bits = values.view(np.uint32)
            file.write(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())
        else:
            file.write(values.tobytes())
        left -= count


def write_adapter(
    folder: Path,
    modules: Mapping[str, tuple[int, int]],
    rank: int,
    alpha: int,
    real: Callable[[FakeTensor], bool],
    seed: int = 1,
) -> None:
    """A PEFT LoRA folder on `modules` (path -> (out, in))."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = sorted({path.rsplit(".", 1)[1] for path in modules})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": targets,
    }
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "bias": "none", "lora_dropout": 0.0})
    )
    write_safetensors(folder / "adapter_model.safetensors", lora_tensors(modules, rank), real, seed)


def write_minicpm5(
    base: Path, adapter: Path, *, shards: int = 1, rank: int = 64, alpha: int = 128, **sizes: int
) -> None:
    """A whole checkpoint of MiniCPM5-1B's shape (or with other `sizes`) and an adapter on every
    projection of every layer.
    """
    config = {**MINICPM5_1B, **sizes}
    base.mkdir(parents=True)
    (base / "config.json").write_text(json.dumps(config))
    write_tokenizer(
        base, config["vocab_size"], "minicpm5", ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
    )
    write_shards(base, llama_tensors(config), shards, lambda tensor: True)
    modules = {
        f"model.layers.{layer}.{name}": shape
        for layer in range(config["num_hidden_layers"])
        for name, shape in llama_projections(config).items()
    }
    write_adapter(adapter, modules, rank, alpha, lambda tensor: True)


def write_qwen36(
    base: Path,
    adapter: Path,
    *,
    shards: int = 15,
    rank: int = 128,
    alpha: int = 256,
    real_layers: tuple[int, ...] = (0, 3),
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Qwen3.6-27B's layout (or with other `sizes`), real bytes in `real_layers` only, and an
    adapter in `adapter`.
    """
    text = {**QWEN36_27B_TEXT, **(sizes or {})}
    base.mkdir(parents=True)
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "tie_word_embeddings": False,
    }
    (base / "config.json").write_text(json.dumps(config))
    write_tokenizer(
        base,
        min(text["vocab_size"], 4096),
        "qwen35",
        ("<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    )
    marks = tuple(f"layers.{layer}." for layer in real_layers)

    def real(tensor: FakeTensor) -> bool:
        return tensor.name.endswith("norm.weight") or (
            any(mark in tensor.name for mark in marks) and "mtp." not in tensor.name
        )

    write_shards(base, qwen35_tensors(text), shards, real)
    modules = {
        f"model.layers.{layer}.{name}": shape
        for layer in range(text["num_hidden_layers"])
        for name, shape in qwen35_projections(
            text, full=(layer + 1) % text["full_attention_interval"] == 0
        ).items()
    }
    write_adapter(adapter, modules, rank, alpha, real)
