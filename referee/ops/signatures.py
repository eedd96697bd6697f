"""Signature kinds: the argument order of `run`, with each argument's shape in symbols.

The symbols are M rows, N columns, H half of N (rope tables of the interleaved form) and 1. A dtype
of "x" is the cell's dtype. For the rope family, N is the head dimension and even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.ops.spec import Op

Symbol = Literal["M", "N", "H", "1"]
ArgumentDtype = Literal["x", "int8", "int64"]


@dataclass(frozen=True)
class Parameter:
    """One argument of `run`."""

    name: str
    shape: tuple[Symbol, ...]
    dtype: ArgumentDtype = "x"


@dataclass(frozen=True)
class Kind:
    """A family of operations with one signature and one output of the cell's dtype."""

    parameters: tuple[Parameter, ...]
    output: tuple[Symbol, ...] = ("M", "N")


def _matrix(name: str) -> Parameter:
    return Parameter(name, ("M", "N"))


def _vector(name: str) -> Parameter:
    return Parameter(name, ("N",))


KINDS: dict[str, Kind] = {
    "unary": Kind((_matrix("x"),)),
    "row_reduce": Kind((_matrix("x"),), ("M",)),
    "rms": Kind((_matrix("x"), _vector("w"))),
    "ln": Kind((_matrix("x"), _vector("w"), _vector("b"))),
    "add_rms": Kind((_matrix("x"), _matrix("residual"), _vector("w"))),
    "add_ln": Kind((_matrix("x"), _matrix("residual"), _vector("w"), _vector("b"))),
    "gate_up": Kind((_matrix("gate"), _matrix("up"))),
    "bias": Kind((_matrix("x"), _vector("bias"))),
    "scale": Kind((_matrix("x"), Parameter("scale", ("1",)))),
    "dequant": Kind((Parameter("q", ("M", "N"), "int8"), Parameter("scale", ("M", "1")))),
    "target": Kind((_matrix("x"), Parameter("tgt", ("M",), "int64")), ("M",)),
    "rope": Kind((_matrix("x"), _matrix("cos"), _matrix("sin"))),
    "rope_interleaved": Kind(
        (_matrix("x"), Parameter("cos", ("M", "H")), Parameter("sin", ("M", "H")))
    ),
    "norm_rope": Kind((_matrix("x"), _vector("w"), _matrix("cos"), _matrix("sin"))),
    "add_norm_rope": Kind(
        (_matrix("x"), _matrix("residual"), _vector("w"), _matrix("cos"), _matrix("sin"))
    ),
    "pair_reduce": Kind((_matrix("x"), _matrix("y")), ("M",)),
}

ROPE_KINDS = frozenset({"rope", "rope_interleaved", "norm_rope", "add_norm_rope"})


def signature(op: Op) -> tuple[str, ...]:
    """Argument names of `run`, in order."""
    return op.arguments or tuple(parameter.name for parameter in KINDS[op.kind].parameters)
