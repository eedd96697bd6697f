"""The operations of a graph: a closed list, each with the kind of its result.

Kinds: "f" is a float32 number, "i" an integer, "b" a truth value, and "=" the kind of the
arguments. A reduction takes a row to one value. A scan gives every element the sum or product of
those before it in its row, itself included.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["f", "i", "b"]
Result = Literal["f", "i", "b", "="]

UNARY: dict[str, Result] = {
    "neg": "=", "abs": "=", "exp": "f", "exp2": "f", "expm1": "f", "log": "f", "log2": "f",
    "log1p": "f", "sqrt": "f", "rsqrt": "f", "recip": "f", "sin": "f", "cos": "f", "erf": "f",
    "tanh": "f", "sigmoid": "f", "silu": "f", "gelu": "f", "gelu_tanh": "f", "softplus": "f",
    "tanh_softplus": "f", "floor": "f", "ceil": "f", "round": "f", "trunc": "f", "sign": "f",
    "relu": "=", "not": "b", "to_float": "f", "to_int": "i",
}  # fmt: skip
BINARY: dict[str, Result] = {
    "add": "=", "sub": "=", "mul": "=", "div": "f", "maximum": "=", "minimum": "=", "pow": "f",
    "mod": "=", "floor_div": "=", "eq": "b", "ne": "b", "lt": "b", "le": "b", "gt": "b", "ge": "b",
    "and": "b", "or": "b", "xor": "b",
}  # fmt: skip
WHERE = "where"
REDUCTIONS: dict[str, Result] = {
    "sum": "=", "max": "=", "min": "=", "prod": "=", "argmax": "i", "argmin": "i",
}  # fmt: skip
SCANS: dict[str, Result] = {"cumsum": "=", "cumprod": "="}
REVERSED = "_reversed"
"""The ending of a scan that begins at the end of the row."""
INDEX, LOAD = "index", "load"
IDENTITY = {
    "sum": 0.0,
    "prod": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
    "argmax": float("-inf"),
    "argmin": float("inf"),
}
"""The value of masked elements: it changes no reduction."""


def result_kind(op: str, kinds: tuple[Kind, ...]) -> Kind:
    """The kind of an operation's result on arguments of these kinds.

    Raises KeyError for an unknown operation.
    """
    scans = {name + ending: kind for name, kind in SCANS.items() for ending in ("", REVERSED)}
    found: Result = "=" if op == WHERE else {**UNARY, **BINARY, **REDUCTIONS, **scans}[op]
    if found != "=":
        return found
    decisive = kinds[1:] if op == WHERE else kinds
    return "f" if "f" in decisive else "i" if "i" in decisive else "b"
