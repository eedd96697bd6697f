"""LlamaForCausalLM -> llama.cpp's `llama` architecture.

llama.cpp rotates neighbouring pairs where Hugging Face rotates halves, so the rows of q_proj and k_proj are re-ordered
within each head; nothing else changes. One-dimensional tensors stay F32. With tied embeddings `output.weight` is
left out and llama.cpp uses the token embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from convert.errors import ArchitectureError
from convert.recipe import Index, Recipe, TensorRule
from convert.rope import read_rope

_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def positive(config: dict[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer of the config. Raises ArchitectureError naming the key."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < 2**31:
        raise ArchitectureError(f"config.json: {key} is {value!r}, a positive integer is needed")
    return value


def pair_order(heads: int, head_dim: int) -> Index:
    """Row order that turns half-rotation into neighbour-rotation, for `heads` heads of `head_dim` rows."""
    return np.arange(heads * head_dim).reshape(heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)


def expected_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor (without optional biases and head) that this config promises, by Hugging Face name."""
    hidden, ffn = positive(config, "hidden_size"), positive(config, "intermediate_size")
    heads = positive(config, "num_attention_heads")
    groups = positive(config, "num_key_value_heads", heads)
    head_dim = positive(config, "head_dim", hidden // heads)
    per_layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (groups * head_dim, hidden),
        "self_attn.v_proj": (groups * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (positive(config, "vocab_size"), hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(positive(config, "num_hidden_layers")):
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in per_layer.items()}
    return shapes


def promised_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """`expected_shapes` with the biases that the config switches on."""
    shapes = expected_shapes(config)
    switched = {"self_attn.": config.get("attention_bias"), "mlp.": config.get("mlp_bias")}
    biased = [name for name in shapes if any(part in name and on for part, on in switched.items())]
    return shapes | {name.removesuffix("weight") + "bias": shapes[name][:1] for name in biased}


def recipe(config: dict[str, Any], names: Collection[str], shape: Callable[[str], tuple[int, ...]]) -> Recipe:
    """The GGUF recipe of a checkpoint with tensors `names`. Raises ArchitectureError on missing, unknown or misshapen ones."""
    hidden, heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    groups = positive(config, "num_key_value_heads", heads)
    head_dim = positive(config, "head_dim", hidden // heads)
    if head_dim % 2:
        raise ArchitectureError(f"head_dim {head_dim} is odd; rotary embeddings need pairs")
    if config.get("hidden_act", "silu") != "silu":
        raise ArchitectureError(f"hidden_act {config['hidden_act']!r}: llama.cpp's llama architecture computes silu only")
    expected = expected_shapes(config)
    rules, used = [], set(expected)
    orders = {"attn_q": pair_order(heads, head_dim), "attn_k": pair_order(groups, head_dim)}
    for source, wanted in expected.items():
        _check(source, wanted, names, shape)
        target = gguf_name(source)
        order = orders.get(target.split(".")[2]) if target.startswith("blk.") else None
        rules.append(TensorRule(target, wanted, source, rows=order, keep_f32=len(wanted) == 1))
        bias = source.removesuffix("weight") + "bias"
        if bias in names:
            _check(bias, wanted[:1], names, shape)
            rules.append(TensorRule(target.removesuffix("weight") + "bias", wanted[:1], bias, rows=order, keep_f32=True))
            used.add(bias)
    if "lm_head.weight" in names:
        _check("lm_head.weight", expected["model.embed_tokens.weight"], names, shape)
        rules.append(TensorRule("output.weight", expected["model.embed_tokens.weight"], "lm_head.weight"))
        used.add("lm_head.weight")
    elif not config.get("tie_word_embeddings", False):
        raise ArchitectureError(
            "lm_head.weight is missing and config.json does not tie it to the embedding", "the checkpoint is incomplete"
        )
    rope = read_rope(config, head_dim)
    if rope.divisors is not None:
        rules.append(TensorRule("rope_freqs.weight", rope.divisors.shape, values=rope.divisors, keep_f32=True))
    dropped = {name: "rotary frequencies are recomputed" for name in names if name.endswith("rotary_emb.inv_freq")}
    unknown = sorted(set(names) - used - set(dropped))
    if unknown:
        raise ArchitectureError(
            f"{len(unknown)} tensors have no place in the llama architecture, the first is {unknown[0]!r}",
            "is this really a Llama checkpoint?",
        )
    context = positive(config, "max_position_embeddings")
    metadata = {
        "llama.block_count": positive(config, "num_hidden_layers"),
        "llama.context_length": context,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": positive(config, "intermediate_size"),
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": groups,
        "llama.attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.vocab_size": positive(config, "vocab_size"),
        "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": rope.theta,
        **{f"llama.{key}": value for key, value in rope.metadata.items()},
    }
    return Recipe("llama", metadata, tuple(rules), positive(config, "vocab_size"), context, dropped)


def gguf_name(source: str) -> str:
    """The GGUF name of a Hugging Face Llama weight."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if source in top:
        return top[source]
    _, _, layer, part = source.split(".", 3)
    return f"blk.{layer}.{_LAYER[part.removesuffix('.weight')]}.weight"


def _check(name: str, wanted: tuple[int, ...], names: Collection[str], shape: Callable[[str], tuple[int, ...]]) -> None:
    if name not in names:
        raise ArchitectureError(f"tensor {name!r} is missing", "the checkpoint is incomplete: download it again")
    if shape(name) != wanted:
        raise ArchitectureError(f"tensor {name!r} has shape {shape(name)}, config.json promises {wanted}")
