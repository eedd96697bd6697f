"""Llama and similar decoders -> llama.cpp's architectures `llama`, `qwen2` and `qwen3`.

`Family` lists their few differences. llama.cpp's `llama` rotates neighbouring pairs where Hugging
Face rotates halves, so the rows of q_proj and k_proj are re-ordered within each head. The others
rotate halves too. One-dimensional tensors stay F32. With tied embeddings `output.weight` is left
out, and llama.cpp uses the token embedding.

Limits: a model with a sliding window gets at most the window as context, because llama.cpp's
architectures read the whole context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from convert.config_values import check_rows, layer_count, number, positive
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
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """The differences between these architectures; the defaults are Llama's transformers class.

    `biased` projections always have a bias, `may_bias` ones where the config says so. `normed` adds
    a norm of each query and key head. A `square` family has as many query rows as hidden columns.
    """

    name: str
    neighbours: bool = False
    normed: bool = False
    square: bool = False
    biased: tuple[str, ...] = ()
    may_bias: tuple[str, ...] = ()
    head_dim: int | None = None
    window: bool = False
    head_sizes: bool = True


LLAMA = Family(name="llama", neighbours=True, may_bias=("self_attn.", "mlp."))
MISTRAL = Family(name="llama", neighbours=True, window=True)
QWEN2 = Family(
    name="qwen2",
    square=True,
    biased=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    head_sizes=False,
)
QWEN3 = Family(name="qwen3", normed=True, head_dim=128)


def pair_order(heads: int, head_dim: int) -> Index:
    """Row order from half-rotation to neighbour-rotation, for `heads` heads of `head_dim` rows."""
    return np.arange(heads * head_dim).reshape(heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)


def refuse_partial_rotation(config: dict[str, Any]) -> None:
    """Raise ArchitectureError for a config that rotates only a part of each head."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    for place in (settings if isinstance(settings, dict) else {}, config):
        if place.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise ArchitectureError(
                f"partial_rotary_factor {place['partial_rotary_factor']!r}: only models "
                "that rotate whole heads are supported"
            )


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, in the config's own words."""

    hidden: int
    ffn: int
    heads: int
    groups: int
    head_dim: int


def read_sizes(config: dict[str, Any], family: Family) -> Sizes:
    """The sizes in `config`. Raises ArchitectureError for missing or unsupported ones."""
    hidden, heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    # Only Llama's class replaces a missing number of groups by the number of heads.
    groups = positive(config, "num_key_value_heads", heads if family is LLAMA else None)
    head_dim = positive(config, "head_dim", family.head_dim or hidden // heads)
    check_rows(max(heads, groups), head_dim, "heads")
    if head_dim % 2:
        raise ArchitectureError(f"head_dim {head_dim} is odd; rotary embeddings need pairs")
    if family.square and heads * head_dim != hidden:
        raise ArchitectureError(
            f"{heads} heads of {head_dim} do not make {hidden} columns, as llama.cpp's "
            f"{family.name} needs"
        )
    refuse_partial_rotation(config)
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ArchitectureError(
            f"hidden_act {config['hidden_act']!r}: llama.cpp's {family.name} architecture "
            "computes silu only"
        )
    return Sizes(hidden, positive(config, "intermediate_size"), heads, groups, head_dim)


def expected_shapes(config: dict[str, Any], family: Family = LLAMA) -> dict[str, tuple[int, ...]]:
    """Every tensor but the head that this config promises, by Hugging Face name."""
    sizes = read_sizes(config, family)
    hidden, ffn, head_dim = sizes.hidden, sizes.ffn, sizes.head_dim
    heads, groups = sizes.heads, sizes.groups
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
    if family.normed:
        per_layer |= {"self_attn.q_norm": (head_dim,), "self_attn.k_norm": (head_dim,)}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (positive(config, "vocab_size"), hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(layer_count(config)):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{part}.weight": shape for part, shape in per_layer.items()}
        biased = (
            part for part in per_layer if part.endswith("_proj") and _has_bias(part, config, family)
        )
        shapes |= {f"{prefix}{part}.bias": per_layer[part][:1] for part in biased}
    return shapes


def _has_bias(part: str, config: dict[str, Any], family: Family) -> bool:
    switched = {"self_attn.": config.get("attention_bias"), "mlp.": config.get("mlp_bias")}
    return part in family.biased or any(
        part.startswith(prefix) and switched[prefix] for prefix in family.may_bias
    )


def recipe(
    config: dict[str, Any],
    names: Collection[str],
    shape: Callable[[str], tuple[int, ...]],
    family: Family = LLAMA,
) -> Recipe:
    """The GGUF recipe of a checkpoint with tensors `names`.

    Raises ArchitectureError for missing, unknown or misshapen ones.
    """
    sizes = read_sizes(config, family)
    hidden, heads, groups, head_dim = sizes.hidden, sizes.heads, sizes.groups, sizes.head_dim
    expected = expected_shapes(config, family)
    rules, used = [], set(expected)
    orders = (
        {"attn_q": pair_order(heads, head_dim), "attn_k": pair_order(groups, head_dim)}
        if family.neighbours
        else {}
    )
    for source, wanted in expected.items():
        _check(source, wanted, names, shape)
        target = gguf_name(source)
        order = orders.get(target.split(".")[2]) if target.startswith("blk.") else None
        rules.append(
            TensorRule(
                name=target, shape=wanted, source=source, rows=order, keep_f32=len(wanted) == 1
            )
        )
    if "lm_head.weight" in names:
        _check("lm_head.weight", expected["model.embed_tokens.weight"], names, shape)
        rules.append(
            TensorRule(
                name="output.weight",
                shape=expected["model.embed_tokens.weight"],
                source="lm_head.weight",
            )
        )
        used.add("lm_head.weight")
    elif not config.get("tie_word_embeddings", False):
        raise ArchitectureError(
            "lm_head.weight is missing and config.json does not tie it to the embedding",
            "the checkpoint is incomplete",
        )
    rope = read_rope(config, head_dim)
    if rope.divisors is not None and family.name != "llama":
        raise ArchitectureError(f"llama3 rope scaling is not known for {family.name}")
    if rope.divisors is not None:
        rules.append(
            TensorRule(
                name="rope_freqs.weight",
                shape=rope.divisors.shape,
                values=rope.divisors,
                keep_f32=True,
            )
        )
    dropped = {name: reason for name in names if (reason := left_out(name)) is not None}
    unknown = sorted(set(names) - used - set(dropped))
    if unknown:
        raise ArchitectureError(
            f"{len(unknown)} tensors have no place in the {family.name} architecture, the "
            f"first is {unknown[0]!r}",
            "is this really a checkpoint of the class that config.json names?",
        )
    context = _context(config, family)
    keys: dict[str, Any] = {
        "block_count": layer_count(config),
        "context_length": context,
        "embedding_length": hidden,
        "feed_forward_length": sizes.ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": groups,
        "attention.layer_norm_rms_epsilon": number(config, "rms_norm_eps", 1e-6),
        "rope.freq_base": rope.theta,
        **rope.metadata,
    }
    if family.head_sizes:
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if family.name == "llama":
        keys |= {"vocab_size": positive(config, "vocab_size"), "rope.dimension_count": head_dim}
    metadata = {f"{family.name}.{key}": value for key, value in keys.items()}
    return Recipe(
        architecture=family.name,
        metadata=metadata,
        tensors=tuple(rules),
        vocab_size=positive(config, "vocab_size"),
        context_length=context,
        dropped=dropped,
    )


def _context(config: dict[str, Any], family: Family) -> int:
    """The longest context for which llama.cpp's results are those of transformers."""
    context, window = positive(config, "max_position_embeddings"), config.get("sliding_window")
    sliding = "sliding_attention" in (config.get("layer_types") or ())
    in_use = config.get("use_sliding_window", family.window or sliding)
    return min(context, window) if in_use and type(window) is int and window > 0 else context


def left_out(name: str) -> str | None:
    """The reason why a tensor is not exported, or None."""
    return "rotary frequencies are recomputed" if name.endswith("rotary_emb.inv_freq") else None


def gguf_name(source: str) -> str:
    """The GGUF name of a Hugging Face Llama weight."""
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    if source in top:
        return top[source]
    _, _, layer, part = source.split(".", 3)
    module, _, tensor = part.rpartition(".")
    return f"blk.{layer}.{_LAYER[module]}.{tensor}"


def _check(
    name: str,
    wanted: tuple[int, ...],
    names: Collection[str],
    shape: Callable[[str], tuple[int, ...]],
) -> None:
    if name not in names:
        raise ArchitectureError(
            f"tensor {name!r} is missing", "the checkpoint is incomplete: download it again"
        )
    if shape(name) != wanted:
        raise ArchitectureError(
            f"tensor {name!r} has shape {shape(name)}, config.json promises {wanted}"
        )
