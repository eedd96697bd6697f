"""Qwen3_5ForConditionalGeneration (text part) -> llama.cpp's `qwen35` architecture.

Every fourth layer is gated full attention, the others are Gated DeltaNet. Three things change.
- llama.cpp needs the value heads of a DeltaNet layer "tiled" (head v of key group k at v * K + k);
  the checkpoint has them "grouped" (k * V/K + v).
- llama.cpp stores A_log as -exp(A_log).
- llama.cpp stores every norm with its +1 included, except the DeltaNet's own norm.

The conversion leaves out the vision tower and the multi-token-prediction head. Source: the model
code in transformers (`modeling_qwen3_5`) and llama.cpp's loader.
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
from convert.safetensors_file import Floats

_DEFAULT_ROPE_SECTIONS = (11, 11, 10)


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen3.5 text model, in the config's own words.

    Every `interval`-th layer is full attention.
    """

    hidden: int
    ffn: int
    layers: int
    heads: int
    groups: int
    head_dim: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    interval: int

    @property
    def key_rows(self) -> int:
        """Rows of q, and of k, in a DeltaNet layer."""
        return self.key_heads * self.key_dim

    @property
    def value_rows(self) -> int:
        """Rows of v in a DeltaNet layer."""
        return self.value_heads * self.value_dim


def read_shape(config: dict[str, Any]) -> Shape:
    """The sizes in `config`. Raises ArchitectureError for missing or inconsistent ones."""
    shape = Shape(
        hidden=positive(config, "hidden_size"),
        ffn=positive(config, "intermediate_size"),
        layers=layer_count(config),
        heads=positive(config, "num_attention_heads"),
        groups=positive(config, "num_key_value_heads"),
        head_dim=positive(config, "head_dim"),
        key_heads=positive(config, "linear_num_key_heads"),
        value_heads=positive(config, "linear_num_value_heads"),
        key_dim=positive(config, "linear_key_head_dim"),
        value_dim=positive(config, "linear_value_head_dim"),
        kernel=positive(config, "linear_conv_kernel_dim"),
        interval=positive(config, "full_attention_interval", 4),
    )
    check_rows(max(shape.heads, shape.groups), shape.head_dim, "heads")
    check_rows(shape.key_heads, shape.key_dim, "key heads")
    check_rows(shape.value_heads, shape.value_dim, "value heads")
    if shape.value_heads % shape.key_heads:
        raise ArchitectureError(
            f"{shape.value_heads} value heads do not divide into {shape.key_heads} key heads"
        )
    if shape.key_dim != shape.value_dim:
        raise ArchitectureError(
            f"key heads of {shape.key_dim} and value heads of {shape.value_dim}: llama.cpp "
            "needs them equal"
        )
    kinds = config.get("layer_types")
    if kinds is not None and kinds != [
        _kind(layer, shape.interval) for layer in range(shape.layers)
    ]:
        raise ArchitectureError(
            f"layer_types is not one full attention layer in every {shape.interval}"
        )
    return shape


def _kind(layer: int, interval: int) -> str:
    return "linear_attention" if (layer + 1) % interval else "full_attention"


def tiled_order(shape: Shape, rows_per_head: int) -> Index:
    """Row order from grouped value heads to tiled ones, `rows_per_head` rows a head."""
    per_key = shape.value_heads // shape.key_heads
    order = np.arange(shape.value_heads * rows_per_head).reshape(
        shape.key_heads, per_key, rows_per_head
    )
    return order.swapaxes(0, 1).reshape(-1)


def _plus_one(values: Floats) -> Floats:
    return values + np.float32(1)


def _decay(values: Floats) -> Floats:
    return -np.exp(values)


def _layer_rules(prefix: str, layer: int, shape: Shape) -> list[TensorRule]:
    hidden, source, target = shape.hidden, f"{prefix}layers.{layer}.", f"blk.{layer}."

    def rule(gguf: str, name: str, size: tuple[int, ...], **how: Any) -> TensorRule:
        return TensorRule(
            name=target + gguf,
            shape=size,
            source=source + name,
            keep_f32=how.pop("keep_f32", len(size) == 1),
            **how,
        )

    rules = [
        rule("attn_norm.weight", "input_layernorm.weight", (hidden,), apply=_plus_one),
        rule(
            "post_attention_norm.weight",
            "post_attention_layernorm.weight",
            (hidden,),
            apply=_plus_one,
        ),
        rule("ffn_gate.weight", "mlp.gate_proj.weight", (shape.ffn, hidden)),
        rule("ffn_up.weight", "mlp.up_proj.weight", (shape.ffn, hidden)),
        rule("ffn_down.weight", "mlp.down_proj.weight", (hidden, shape.ffn)),
    ]
    if _kind(layer, shape.interval) == "full_attention":
        return [*rules, *_attention_rules(rule, shape)]
    values, heads = tiled_order(shape, shape.value_dim), tiled_order(shape, 1)
    mixed = np.concatenate([np.arange(2 * shape.key_rows), 2 * shape.key_rows + values])
    channels = 2 * shape.key_rows + shape.value_rows
    return [
        *rules,
        rule("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", (channels, hidden), rows=mixed),
        rule(
            "attn_gate.weight",
            "linear_attn.in_proj_z.weight",
            (shape.value_rows, hidden),
            rows=values,
        ),
        rule(
            "ssm_alpha.weight",
            "linear_attn.in_proj_a.weight",
            (shape.value_heads, hidden),
            rows=heads,
        ),
        rule(
            "ssm_beta.weight",
            "linear_attn.in_proj_b.weight",
            (shape.value_heads, hidden),
            rows=heads,
        ),
        rule("ssm_a", "linear_attn.A_log", (shape.value_heads,), rows=heads, apply=_decay),
        rule("ssm_dt.bias", "linear_attn.dt_bias", (shape.value_heads,), rows=heads),
        rule(
            "ssm_conv1d.weight",
            "linear_attn.conv1d.weight",
            (channels, shape.kernel),
            rows=mixed,
            keep_f32=True,
        ),
        rule("ssm_norm.weight", "linear_attn.norm.weight", (shape.value_dim,)),
        rule(
            "ssm_out.weight",
            "linear_attn.out_proj.weight",
            (hidden, shape.value_rows),
            columns=values,
        ),
    ]


def _attention_rules(rule: Callable[..., TensorRule], shape: Shape) -> list[TensorRule]:
    hidden, dim = shape.hidden, shape.head_dim
    return [
        rule("attn_q.weight", "self_attn.q_proj.weight", (2 * shape.heads * dim, hidden)),
        rule("attn_k.weight", "self_attn.k_proj.weight", (shape.groups * dim, hidden)),
        rule("attn_v.weight", "self_attn.v_proj.weight", (shape.groups * dim, hidden)),
        rule("attn_output.weight", "self_attn.o_proj.weight", (hidden, shape.heads * dim)),
        rule("attn_q_norm.weight", "self_attn.q_norm.weight", (dim,), apply=_plus_one),
        rule("attn_k_norm.weight", "self_attn.k_norm.weight", (dim,), apply=_plus_one),
    ]


def expected_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every promised tensor of the text model but the head, by Hugging Face name."""
    rules = _rules(read_shape(config), positive(config, "vocab_size"), "model.")
    return {rule.source: rule.shape for rule in rules if rule.source is not None}


def _rules(shape: Shape, vocab: int, prefix: str) -> list[TensorRule]:
    rules = [
        TensorRule(
            name="token_embd.weight",
            shape=(vocab, shape.hidden),
            source=f"{prefix}embed_tokens.weight",
        ),
        TensorRule(
            name="output_norm.weight",
            shape=(shape.hidden,),
            source=f"{prefix}norm.weight",
            apply=_plus_one,
            keep_f32=True,
        ),
    ]
    for layer in range(shape.layers):
        rules += _layer_rules(prefix, layer, shape)
    return rules


def recipe(
    config: dict[str, Any], names: Collection[str], shape_of: Callable[[str], tuple[int, ...]]
) -> Recipe:
    """The GGUF recipe of a checkpoint's text model.

    Raises ArchitectureError for missing, unknown or misshapen tensors.
    """
    shape = read_shape(config)
    vocab = positive(config, "vocab_size")
    prefix = (
        "model.language_model."
        if any(name.startswith("model.language_model.") for name in names)
        else "model."
    )
    rules = _rules(shape, vocab, prefix)
    if "lm_head.weight" in names:
        rules.append(
            TensorRule(name="output.weight", shape=(vocab, shape.hidden), source="lm_head.weight")
        )
    elif not config.get("tie_word_embeddings", False):
        raise ArchitectureError(
            "lm_head.weight is missing and config.json does not tie it to the embedding"
        )
    for rule in rules:
        _check(rule, names, shape_of)
    dropped = {name: reason for name in names if (reason := left_out(name)) is not None}
    unknown = sorted(set(names) - {rule.source for rule in rules} - set(dropped))
    if unknown:
        raise ArchitectureError(
            f"{len(unknown)} tensors have no place in the qwen35 architecture, the first is "
            f"{unknown[0]!r}"
        )
    context = positive(config, "max_position_embeddings")
    return Recipe(
        architecture="qwen35",
        metadata=_metadata(config, shape, context),
        tensors=tuple(rules),
        vocab_size=vocab,
        context_length=context,
        dropped=dropped,
    )


def _check(
    rule: TensorRule, names: Collection[str], shape_of: Callable[[str], tuple[int, ...]]
) -> None:
    assert rule.source is not None
    if rule.source not in names:
        raise ArchitectureError(
            f"tensor {rule.source!r} is missing", "the checkpoint is incomplete: download it again"
        )
    stored = tuple(
        extent for axis, extent in enumerate(shape_of(rule.source)) if extent != 1 or axis == 0
    )
    if stored != tuple(
        extent for axis, extent in enumerate(rule.shape) if extent != 1 or axis == 0
    ):
        raise ArchitectureError(
            f"tensor {rule.source!r} has shape {shape_of(rule.source)}, config.json "
            f"promises {rule.shape}"
        )


def left_out(name: str) -> str | None:
    """The reason why a tensor is not exported, or None."""
    if ".visual." in name or name.startswith("visual."):
        return "the vision tower is not needed for text"
    return (
        "the multi-token-prediction head is not exported"
        if name.startswith("mtp.") or ".mtp." in name
        else None
    )


def _metadata(config: dict[str, Any], shape: Shape, context: int) -> dict[str, Any]:
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = read_rope(config, shape.head_dim)
    if rope.divisors is not None:
        raise ArchitectureError("llama3 rope scaling is not known for qwen35")
    partial = number({**config, **settings}, "partial_rotary_factor", 0.25)
    sections = settings.get("mrope_section") or list(_DEFAULT_ROPE_SECTIONS)
    if not isinstance(sections, list) or len(sections) > 4:
        raise ArchitectureError("mrope_section is not a list of up to four sizes")
    if not all(type(size) is int and 0 <= size <= shape.head_dim for size in sections):
        raise ArchitectureError(f"mrope_section {repr(sections)[:60]} is not usable")
    keys = {
        "block_count": shape.layers,
        "context_length": context,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.groups,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": number(config, "rms_norm_eps", 1e-6),
        "attention.recurrent_layers": [
            _kind(layer, shape.interval) == "linear_attention" for layer in range(shape.layers)
        ],
        "rope.dimension_count": int(shape.head_dim * min(partial, 1.0)),
        "rope.dimension_sections": sections + [0] * (4 - len(sections)),
        "rope.freq_base": rope.theta,
        "ssm.conv_kernel": shape.kernel,
        "ssm.state_size": shape.key_dim,
        "ssm.group_count": shape.key_heads,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": shape.value_rows,
        "full_attention_interval": shape.interval,
        **rope.metadata,
    }
    return {f"qwen35.{key}": value for key, value in keys.items()}
