"""What the smith is trained on: catalogue ops, a sample of remix ops and synthetic ops, without the held-out ones.

Synthetic ops exist in no catalogue: the other activations alone, with a bias, and as gates. They teach that an activation
is the same thing wherever it stands. They are judged like any other op, with references made from the catalogue's own.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from forge.grammar import GATES
from referee.ops import Op, catalogue, cells, get
from referee.ops.activations import ACTIVATIONS

if TYPE_CHECKING:
    from referee.ops.task import Task

HELDOUT_FILE = Path(__file__).with_name("heldout.toml")
REMIX_SEED = 20
REMIX_COUNT = 420
_PROBES = (-30.0, -7.3, -3.1, -2.0, -1.0, -0.6, -0.11, 0.0, 0.2, 0.7, 1.0, 1.9, 3.3, 5.7, 6.5, 9.0, 25.0)
_PLAIN = ("gelu", "silu", "relu2")


def _softplus(n: float) -> float:
    return n if n > 20 else math.log1p(math.exp(n))


SCALAR: dict[str, Callable[[float], float]] = {
    "gelu": lambda n: 0.5 * n * (1 + math.tanh(0.7978845608 * (n + 0.044715 * n**3))),
    "silu": lambda n: n / (1 + math.exp(-n)),
    "relu2": lambda n: max(n, 0.0) ** 2,
    "tanh": math.tanh,
    "sigmoid": lambda n: 1 / (1 + math.exp(-n)),
    "relu": lambda n: max(n, 0.0),
    "square": lambda n: n * n,
    "abs": abs,
    "softsign": lambda n: n / (1 + abs(n)),
    "hardsigmoid": lambda n: min(max(n + 3, 0.0), 6.0) / 6,
    "hardswish": lambda n: n * min(max(n + 3, 0.0), 6.0) / 6,
    "leaky_relu": lambda n: n if n > 0 else 0.01 * n,
    "relu6": lambda n: min(max(n, 0.0), 6.0),
    "hardtanh": lambda n: min(max(n, -1.0), 1.0),
    "elu": lambda n: n if n > 0 else math.expm1(n),
    "selu": lambda n: 1.0507009873554805 * (n if n > 0 else 1.6732632423543772 * math.expm1(n)),
    "softplus": _softplus,
    "mish": lambda n: n * math.tanh(_softplus(n)),
    "gelu_erf": lambda n: 0.5 * n * (1 + math.erf(n / math.sqrt(2))),
}


@lru_cache(maxsize=1)
def heldout() -> tuple[Op, ...]:
    """The held-out catalogue ops (with their `_short` forms), then the held-out remix ops."""
    document = tomllib.loads(HELDOUT_FILE.read_text(encoding="utf-8"))
    names = list(document["catalogue"])
    listed = {op.name for op in catalogue()}
    names += [f"{name}_short" for name in names if f"{name}_short" in listed]
    return tuple(get(name) for name in (*names, *document["remix"]))


def _equal(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    return all(math.isclose(_compose(first, n), _compose(second, n), rel_tol=1e-6, abs_tol=1e-9) for n in _PROBES)


def _compose(acts: tuple[str, ...], n: float) -> float:
    for act in acts:
        try:
            n = SCALAR[act](n)
        except OverflowError:
            n = 0.0
    return n


def is_heldout(op: Op) -> bool:
    """Whether the op, or one computing the same function from the same inputs, is held out."""
    return any(op.name == other.name or (_alike(op, other) and _equal(_acts(op), _acts(other))) for other in heldout())


def _alike(op: Op, other: Op) -> bool:
    return (op.kind, op.norm, op.residual, op.eps) == (other.kind, other.norm, other.residual, other.eps) and bool(_acts(op)) == bool(
        _acts(other)
    )


def _acts(op: Op) -> tuple[str, ...]:
    if op.acts:
        return op.acts
    name = op.name.removesuffix("_short")
    if op.kind == "gate_up":
        return (GATES[name],)
    if op.kind == "bias":
        return (name.removeprefix("bias_"),)
    return (name,) if op.kind == "unary" and name in ACTIVATIONS else ()


def synthetic() -> tuple[Op, ...]:
    """The other activations alone, after a bias, and as gates; `acts` names the activation."""
    ops = []
    gated = set(GATES.values())
    for act in ACTIVATIONS.values():
        name, formula = act.name, act.formula
        if name not in _PLAIN:
            ops.append(_synthetic(name, "unary", act.title, f"n = x; out = {formula}; all in fp32, cast to x.dtype", name))
        if name != "gelu":
            ops.append(
                _synthetic(
                    f"bias_{name}", "bias", f"bias + {act.title}", f"n = x + bias; out = {formula}; all in fp32, cast to x.dtype", name
                )
            )
        if name not in gated:
            text = f"n = gate; out = ({formula}) * up; all in fp32, cast to gate.dtype"
            ops.append(_synthetic(f"{name}_glu", "gate_up", f"gated {act.title}", text, name))
    return tuple(ops)


def _synthetic(name: str, kind: str, title: str, formula: str, act: str) -> Op:
    return Op(name, kind, "gated" if kind == "gate_up" else "activation", title, formula, "familiar", acts=(act,))


def remixes() -> tuple[Op, ...]:
    """A seeded sample of remix ops for training (held-out ones are filtered by `training`)."""
    norms = ("rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm")
    names = [f"{norm}_{first}_{second}" for norm in norms for first in ACTIVATIONS for second in ACTIVATIONS]
    return tuple(get(name) for name in random.Random(REMIX_SEED).sample(names, REMIX_COUNT))


def training() -> tuple[Op, ...]:
    """Every op the corpus holds kernels for."""
    return tuple(op for op in (*catalogue(), *synthetic(), *remixes()) if not is_heldout(op))


def task(op: Op) -> Task:
    """The referee's task of any op of `training` or `heldout`, on the small CPU cells."""
    from referee.ops import eager, oracle
    from referee.ops.reference import eager as eager_of
    from referee.ops.reference import oracle as oracle_of
    from referee.ops.task import Task
    from referee.ops.tolerance import public_tolerances

    chosen = cells(op, profile="cpu")
    if op.name not in {made.name for made in synthetic()}:
        return Task(op, chosen, eager_of(op), oracle_of(op), public_tolerances(op), rowwise=True)
    fast, exact = eager.ACTS[op.acts[0]], oracle.ACTS[op.acts[0]]
    if op.kind == "gate_up":
        return Task(
            op,
            chosen,
            lambda gate, up: (fast(gate.float()) * up.float()).to(gate.dtype),
            lambda gate, up: exact(gate.double()) * up.double(),
            public_tolerances(op),
            rowwise=True,
        )
    if op.kind == "bias":
        return Task(
            op,
            chosen,
            lambda x, bias: fast(x.float() + bias.float()).to(x.dtype),
            lambda x, bias: exact(x.double() + bias.double()),
            public_tolerances(op),
            rowwise=True,
        )
    return Task(op, chosen, lambda x: fast(x.float()).to(x.dtype), lambda x: exact(x.double()), public_tolerances(op), rowwise=True)
