"""A stranger's config.json determines sizes, but only within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from convert import llama, qwen35
from convert.architectures import recipe_of
from convert.errors import ArchitectureError

Shapes = Callable[[dict[str, Any]], dict[str, tuple[int, ...]]]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
QWEN = LLAMA | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
FAMILIES: dict[str, tuple[dict[str, Any], Shapes]] = {
    "llama": (LLAMA, llama.expected_shapes),
    "qwen35": (QWEN, qwen35.expected_shapes),
}
BAD = {
    "layers": {"num_hidden_layers": 2**31 - 1},
    "heads": {"num_attention_heads": 2**23, "head_dim": 2**10},
    "heads of layers": {"linear_num_value_heads": 2**22, "num_attention_heads": 2**22},
    "vocabulary": {"vocab_size": 2**62},
    "text": {"rms_norm_eps": "small"},
    "list": {"rms_norm_eps": [1e-6]},
    "object": {"rms_norm_eps": {}},
    "true": {"rms_norm_eps": True},
    "null": {"rms_norm_eps": None},
    "too large a float": {"rope_theta": 10**400},
    "rope as text": {"rope_theta": "x"},
    "rope type as a list": {"rope_parameters": {"rope_type": ["default"]}},
    "rope settings": {"rope_parameters": {"rope_type": "linear", "factor": 10**400}},
}


class Promised:
    """The tensors that a config promises; `shape` answers as a checkpoint would."""

    def __init__(self, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        self.config, self.names, self._shapes = config, frozenset(shapes), shapes

    def shape(self, name: str) -> tuple[int, ...]:
        """One tensor's shape."""
        return self._shapes[name]


@pytest.mark.parametrize("changed", BAD.values(), ids=BAD)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_odd_number_is_refused(family: str, changed: dict[str, Any]) -> None:
    sound, shapes = FAMILIES[family]
    config = sound | changed
    with pytest.raises(ArchitectureError) as refused:
        recipe_of(config, Promised(config, shapes(sound)))
    assert len(refused.value.reason) < 200


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sound_config_has_a_recipe(family: str) -> None:
    sound, shapes = FAMILIES[family]
    found = recipe_of(sound, Promised(sound, shapes(sound)))
    assert {rule.source for rule in found.tensors} == set(shapes(sound))


@pytest.mark.parametrize("named", [[["LlamaForCausalLM"]], [{}], "x" * 100_000, {"a": 1}])
def test_an_odd_architecture_is_refused(named: object) -> None:
    with pytest.raises(ArchitectureError, match="is not supported") as refused:
        recipe_of({"architectures": named}, Promised(LLAMA, {}))
    assert len(refused.value.reason) < 200


@pytest.mark.parametrize("sections", ["abcd", {"a": 1}, 7, [1, 2, 3, 4, 5], [-1], [10**30], ["x"]])
def test_odd_rope_sections_are_refused(sections: object) -> None:
    config = QWEN | {"rope_parameters": {"mrope_section": sections}}
    with pytest.raises(ArchitectureError, match="mrope_section"):
        recipe_of(config, Promised(config, qwen35.expected_shapes(QWEN)))
