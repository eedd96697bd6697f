"""The catalogue holds exactly the public ops, under their names and argument orders."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from referee.ops import UnknownOp, catalogue, get, signature
from referee.ops.catalogue import SHORT_BASES, base_name
from referee.ops.grammar import ACTIVATIONS, chain_name, parse_remix

EXPLICIT = {
    "rmsnorm": "x w",
    "softmax": "x",
    "swiglu": "gate up",
    "add_rmsnorm": "x residual w",
    "rope": "x cos sin",
    "layernorm": "x w b",
    "add_layernorm": "x residual w b",
    "geglu": "gate up",
    "qknorm_rope": "x w cos sin",
    "gelu": "x",
    "silu": "x",
    "relu2": "x",
    "bias_gelu": "x bias",
    "reglu": "gate up",
    "l2norm": "x",
    "log_softmax": "x",
    "softmax_scale": "x scale",
    "layernorm_gelu": "x w b",
    "add_rmsnorm_rope": "x residual w cos sin",
    "dequant_int8": "q scale",
}
STANDALONE = {
    "softcap_softmax": "x",
    "rmsnorm_gemma": "x w",
    "glu": "gate up",
    "rope_interleaved": "x cos sin",
    "cross_entropy": "x tgt",
}
PROBES = {"rmsnorm_wide": "x w", "cumsum": "x", "entropy": "x", "kl_div": "x y"}
ACTS = (
    "gelu silu relu2 tanh sigmoid relu square abs softsign hardsigmoid hardswish leaky_relu relu6 hardtanh elu selu softplus mish gelu_erf"
).split()
NAMES = tuple(op.name for op in catalogue())


def chains() -> dict[str, str]:
    """The 76 chain names with their argument orders, spelled out independently of the grammar."""
    arguments = {
        "rmsnorm": "x w",
        "layernorm": "x w b",
        "add_rmsnorm": "x residual w",
        "add_layernorm": "x residual w b",
    }
    return {f"{norm}_{act}": order for (norm, order), act in product(arguments.items(), ACTS)}


def test_the_explicit_ops_come_first_and_begin_with_exemplars() -> None:
    assert NAMES[:20] == tuple(EXPLICIT)
    assert NAMES[:2] == ("rmsnorm", "softmax")


def test_every_public_op_is_there_once_and_no_other() -> None:
    shorts = {f"{name}_short" for name in SHORT_BASES}
    assert len(chains()) == 76
    assert len(shorts) == 14
    assert set(NAMES) == set(EXPLICIT) | set(STANDALONE) | set(chains()) | set(PROBES) | shorts
    assert len(NAMES) == len(set(NAMES)) == 118


def test_arguments_are_in_public_order() -> None:
    for name, order in {**EXPLICIT, **STANDALONE, **PROBES, **chains()}.items():
        assert signature(get(name)) == tuple(order.split()), name


def test_a_short_op_keeps_its_base_contract() -> None:
    for base in SHORT_BASES:
        short, op = get(f"{base}_short"), get(base)
        assert (short.formula, short.kind, short.acts, short.eps) == (
            op.formula,
            op.kind,
            op.acts,
            op.eps,
        )
        assert base_name(short) == base
        assert short.regime == "short"


def test_layernorm_gelu_is_one_op_in_both_lists() -> None:
    assert get("layernorm_gelu").acts == ("gelu",)
    assert NAMES.count("layernorm_gelu") == 1


def test_eps_is_1e6_for_rms_and_1e5_for_layer() -> None:
    for name in chains():
        assert get(name).eps == (1e-6 if "rmsnorm" in name else 1e-5)


def test_every_op_says_what_it_computes() -> None:
    for op in catalogue():
        assert op.title
        assert "out" in op.formula
        assert "cast to" in op.formula


def test_the_probes_and_remixes_are_hard_and_the_chains_familiar() -> None:
    assert {op.name for op in catalogue() if op.difficulty == "hard"} == set(PROBES)
    assert get("rmsnorm_gelu_tanh").difficulty == "hard"


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("sofmax", "softmax"),
        ("rms_norm", "rmsnorm"),
        ("layernorm-gelu", "layernorm_gelu"),
        ("swigl", "swiglu"),
        ("leaky", "leaky_relu"),
    ],
)
def test_an_unknown_name_offers_near_ones(typo: str, meant: str) -> None:
    with pytest.raises(UnknownOp) as caught:
        get(typo)
    assert any(meant in name for name in caught.value.nearest)
    assert len(caught.value.nearest) <= 3
    assert typo in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "zzzzzzzz",
        "matmul",
        "rmsnorm_",
        "rmsnorm_gelu_",
        "add_softmax_gelu",
        "rmsnorm_gelu_tanh_silu",
    ],
)
def test_names_outside_the_grammar_are_unknown(name: str) -> None:
    with pytest.raises(UnknownOp):
        get(name)


def test_every_remix_name_parses_to_what_it_was_made_of() -> None:
    for norm, residual, first, second in product(
        ("rms", "layer"), (False, True), ACTIVATIONS, ACTIVATIONS
    ):
        name = chain_name(norm, residual, (first, second))  # type: ignore[arg-type]
        op = get(name)
        if name in NAMES:
            assert op.origin == "catalogue"
            continue
        assert (op.name, op.norm, op.residual, op.acts, op.origin) == (
            name,
            norm,
            residual,
            (first, second),
            "remix",
        )


def test_a_chain_name_is_not_a_remix() -> None:
    assert parse_remix("rmsnorm_gelu_erf") is None
    assert parse_remix("add_layernorm_leaky_relu") is None
    remix = parse_remix("rmsnorm_gelu_erf_leaky_relu")
    assert remix is not None
    assert remix.acts == ("gelu_erf", "leaky_relu")


def test_listing_the_catalogue_loads_no_torch() -> None:
    code = (
        "import sys; from referee.ops import catalogue, cells, card_text, trained_text\n"
        "for op in catalogue(): cells(op, profile='gpu'); card_text(op); trained_text(op)\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
