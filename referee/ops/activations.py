"""The 19 activations of the chain grammar as text: names, titles, formulas and growth.

The numeric forms are in `eager.py` and `oracle.py`, written independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """One elementwise function. `formula` uses `n` for its argument; `degree` is its growth for
    large arguments.
    """

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
