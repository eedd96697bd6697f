"""Prompt texts carry the signature and formula in both dialects, with the quirks of the trained
one.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest

from referee.ops import card_text, catalogue, get, signature, trained_text


def test_the_card_signature_is_typed() -> None:
    assert (
        card_text(get("rmsnorm")).signature == "run(x: Tensor[M, N], w: Tensor[N]) -> Tensor[M, N]"
    )
    assert (
        card_text(get("cross_entropy")).signature
        == "run(x: Tensor[M, N], tgt: Tensor[M]) -> Tensor[M]"
    )
    assert (
        card_text(get("rope_interleaved")).signature
        == "run(x: Tensor[M, D], cos: Tensor[M, D/2], sin: Tensor[M, D/2]) -> Tensor[M, D]"
    )
    assert (
        card_text(get("softmax_scale")).signature
        == "run(x: Tensor[M, N], scale: Tensor[1]) -> Tensor[M, N]"
    )


def test_both_dialects_name_the_arguments_in_order() -> None:
    for op in catalogue():
        typed = card_text(op).signature.removeprefix("run(").split(") -> ")[0]
        assert tuple(re.findall(r"(\w+): Tensor", typed)) == signature(op)
        line = trained_text(op).signature.splitlines()[0]
        function = ast.parse(line.split("#")[0] + " pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        assert tuple(argument.arg for argument in function.args.args) == signature(op)


def test_descriptions_are_one_line_and_say_the_formula() -> None:
    for op in catalogue():
        assert "\n" not in card_text(op).description
        assert op.formula in card_text(op).description
        if not op.acts:
            assert op.formula in trained_text(op).signature


@pytest.mark.parametrize(
    ("name", "shown"),
    [("rmsnorm_leaky_relu", "relu"), ("add_layernorm_gelu_erf", "erf"), ("layernorm_silu", "silu")],
)
def test_a_chain_hint_shows_the_text_after_the_last_underscore(name: str, shown: str) -> None:
    text = trained_text(get(name))
    assert f"then {shown} epilogue" in text.signature
    assert text.description == f"generative fusion chain (reduction->epilogue): {name}."


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rmsnorm_silu", ": RMSNorm then"),
        ("add_rmsnorm_silu", "residual+RMSNorm"),
        ("add_layernorm_silu", "residual+LayerNorm"),
    ],
)
def test_a_trained_chain_hint_spells_the_normalisation(name: str, kind: str) -> None:
    assert kind in trained_text(get(name)).signature


def test_short_ops_alone_carry_a_regime_comment() -> None:
    for op in catalogue():
        assert ("REGIME" in trained_text(op).signature) == (op.regime == "short")
    assert "16384" in trained_text(get("softmax_short")).signature


def test_a_remix_names_both_activations_on_the_card() -> None:
    description = card_text(get("rmsnorm_silu_tanh")).description
    assert "SiLU -> tanh" in description
    assert "out = tanh(n)" in description


def test_a_user_op_is_described_by_its_own_words() -> None:
    op = replace(
        get("softmax"),
        name="mine",
        kind="function",
        origin="user",
        arguments=("a", "b"),
        formula="adds a to b",
    )
    assert card_text(op).signature == "run(a: Tensor, b: Tensor) -> Tensor"
    assert "adds a to b" in card_text(op).description
    assert trained_text(op).signature == "def run(a, b):  # adds a to b"
