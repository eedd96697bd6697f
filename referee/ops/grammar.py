"""The chain grammar: [add_](rmsnorm|layernorm)_<act>, and the remix form with two activations.

Names parse in one way only, because no activation's name consists of two others ("leaky" and "erf"
are not activations). The 19 activations stand here as text: names, titles, formulas and growth. The
numeric forms are in `eager.py` and `oracle.py`, written independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.ops.spec import Op


@dataclass(frozen=True)
class Activation:
    """One elementwise function. `formula` uses `n`; `degree` is its growth for large arguments."""

    name: str
    title: str
    formula: str
    degree: int = 1


ACTIVATIONS: dict[str, Activation] = {
    act.name: act
    for act in (
        Activation("gelu", "GELU (tanh form)", "0.5*n*(1 + tanh(0.7978845608*(n + 0.044715*n^3)))"),
        Activation("silu", "SiLU", "n*sigmoid(n)"),
        Activation("relu2", "squared ReLU", "max(n, 0)^2", degree=2),
        Activation("tanh", "tanh", "tanh(n)"),
        Activation("sigmoid", "sigmoid", "1/(1 + exp(-n))"),
        Activation("relu", "ReLU", "max(n, 0)"),
        Activation("square", "square", "n*n", degree=2),
        Activation("abs", "absolute value", "|n|"),
        Activation("softsign", "softsign", "n/(1 + |n|)"),
        Activation("hardsigmoid", "hard sigmoid", "min(max(n + 3, 0), 6)/6"),
        Activation("hardswish", "hard swish", "n*min(max(n + 3, 0), 6)/6"),
        Activation("leaky_relu", "leaky ReLU (slope 0.01)", "n if n > 0 else 0.01*n"),
        Activation("relu6", "ReLU6", "min(max(n, 0), 6)"),
        Activation("hardtanh", "hard tanh", "min(max(n, -1), 1)"),
        Activation("elu", "ELU", "n if n > 0 else exp(n) - 1"),
        Activation(
            "selu", "SELU", "1.0507009873554805*(n if n > 0 else 1.6732632423543772*(exp(n) - 1))"
        ),
        Activation("softplus", "softplus (threshold 20)", "n if n > 20 else log(1 + exp(n))"),
        Activation(
            "mish",
            "Mish",
            "n*tanh(softplus(n)) with softplus(n) = n if n > 20 else log(1 + exp(n))",
        ),
        Activation("gelu_erf", "GELU (exact)", "0.5*n*(1 + erf(n/sqrt(2)))"),
    )
}


RMS_EPS = 1e-6
LAYER_EPS = 1e-5
Norm = Literal["rms", "layer"]

_WORD: dict[Norm, str] = {"rms": "rmsnorm", "layer": "layernorm"}
_TITLE: dict[Norm, str] = {"rms": "RMSNorm", "layer": "LayerNorm"}


def norm_formula(norm: Norm, residual: bool) -> str:
    """The normalisation in words, naming its result `n`."""
    start = "h = x + residual; " if residual else "h = x; "
    if norm == "rms":
        return start + f"n = h / sqrt(mean(h^2 over the row) + {RMS_EPS:g}) * w"
    return (
        start
        + f"m = mean(h over the row); v = mean((h - m)^2 over the row); n = (h - m) / sqrt(v + {LAYER_EPS:g}) * w + b"
    )


def norm_kind(norm: Norm, residual: bool) -> str:
    """The signature kind of a normalisation."""
    return ("add_" if residual else "") + ("rms" if norm == "rms" else "ln")


def chain_name(norm: Norm, residual: bool, acts: tuple[str, ...]) -> str:
    """The public name: `add_rmsnorm_gelu`, or `layernorm_silu_tanh` for a remix."""
    return "_".join((*(("add",) if residual else ()), _WORD[norm], *acts))


def norm_title(norm: Norm, residual: bool) -> str:
    """`LayerNorm` or `residual + LayerNorm`."""
    return ("residual + " if residual else "") + _TITLE[norm]


def chain(norm: Norm, residual: bool, acts: tuple[str, ...]) -> Op:
    """A normalisation followed by one activation, or by two (a remix)."""
    formula = norm_formula(norm, residual)
    for position, act in enumerate(acts):
        formula += f"; {'out' if position == len(acts) - 1 else 'n'} = {ACTIVATIONS[act].formula}"
    return Op(
        name=chain_name(norm, residual, acts),
        kind=norm_kind(norm, residual),
        family="chain",
        title=" -> ".join((norm_title(norm, residual), *(ACTIVATIONS[act].title for act in acts))),
        formula=formula + "; all in fp32, cast to x.dtype",
        difficulty="familiar" if len(acts) == 1 else "hard",
        norm=norm,
        residual=residual,
        acts=acts,
        eps=RMS_EPS if norm == "rms" else LAYER_EPS,
        origin="catalogue" if len(acts) == 1 else "remix",
    )


def parse_remix(name: str) -> Op | None:
    """The remix of that name, or None if the grammar does not have it."""
    rest = name.removeprefix("add_")
    for norm in ("rms", "layer"):
        prefix = _WORD[norm] + "_"
        if not rest.startswith(prefix):
            continue
        tail = rest.removeprefix(prefix)
        for first in ACTIVATIONS:
            second = tail.removeprefix(first + "_")
            if second != tail and second in ACTIVATIONS:
                return chain(norm, rest != name, (first, second))
    return None
