"""Operations are found by words, by their usual other names, and never by chance."""

from __future__ import annotations

import pytest

from kmint_tui.core.op_search import AmbiguousOp, find, resolve, words
from referee.ops import UnknownOp, listed


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("layer norm", "layernorm"),
        ("add rms", "add_rmsnorm"),
        ("rms residual", "add_rmsnorm"),
        ("LayerNorm + GELU", "layernorm_gelu"),
        ("swish", "silu"),
        ("rotary", "rope"),
        ("logits kl", "kl_div"),
        ("int8", "dequant_int8"),
    ],
)
def test_the_nearest_operation_is_listed_first(text: str, first: str) -> None:
    assert find(text)[0].name == first


def test_every_word_has_to_be_held() -> None:
    found = find("rms residual")
    assert found
    assert all("add_rmsnorm" in op.name for op in found)
    assert find("rms residual zzz") == ()


def test_no_words_find_nothing_and_no_text_finds_all() -> None:
    assert find("?!") == ()
    assert find("") == listed()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rmsnorm residual silu", "add_rmsnorm_silu"),
        ("residual, then RMS norm with exact GELU", "add_rmsnorm_gelu_erf"),
        ("rms silu tanh", "rmsnorm_silu_tanh"),
        ("rms tanh silu", "rmsnorm_tanh_silu"),
        ("softmax", "softmax"),
        ("gemma", "rmsnorm_gemma"),
        ("cross entropy loss", "cross_entropy"),
        ("hard swish layer norm", "layernorm_hardswish"),
    ],
)
def test_words_name_one_operation(text: str, name: str) -> None:
    assert resolve(text).name == name


def test_every_name_is_found_by_its_own_words() -> None:
    """No other name of one operation hides another operation."""
    for op in listed():
        assert resolve(op.name.replace("_", " ")).name == op.name


def test_several_candidates_are_all_named() -> None:
    with pytest.raises(AmbiguousOp) as ambiguous:
        resolve("residual norm")
    assert ambiguous.value.candidates == find("residual norm")
    assert len(ambiguous.value.candidates) > 2


@pytest.mark.parametrize(
    ("text", "near"),
    [("softmx", "softmax"), ("rms nrom", "rmsnorm"), ("rmsnorm residul", "add_rmsnorm")],
)
def test_a_misspelt_word_is_answered_with_near_names(text: str, near: str) -> None:
    with pytest.raises(UnknownOp) as unknown:
        resolve(text)
    assert near in unknown.value.nearest


def test_words_are_spelled_as_the_catalogue_does() -> None:
    assert words("The fused Layer-Norm of residual + x, then SWISH") == (
        "layernorm",
        "add",
        "x",
        "silu",
    )


def test_a_single_letter_begins_a_word() -> None:
    assert [op.name for op in find("rms w")][:2] == ["rmsnorm_gemma", "rmsnorm_wide"]
    assert "rmsnorm_gelu_erf" not in [op.name for op in find("rms w")]
