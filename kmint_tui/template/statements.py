"""Each operation of the vocabulary as Triton statements on float32 and integer values.

The forms are exact and do not overflow where the result is finite. `libdevice` has the functions
that Triton's language lacks.
"""

from __future__ import annotations

from collections.abc import Callable

from kmint_tui.graph.program import Line
from kmint_tui.graph.vocabulary import IDENTITY, INDEX, REVERSED

_UNARY: dict[str, str] = {
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "expm1": "libdevice.expm1({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log1p": "libdevice.log1p({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "recip": "1.0 / {0}",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
    "sigmoid": "tl.sigmoid({0})",
    "silu": "{0} * tl.sigmoid({0})",
    "gelu": "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    "gelu_tanh": "{0} * tl.sigmoid(1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0}))",
    "softplus": "tl.maximum({0}, 0.0) + libdevice.log1p(tl.exp(-tl.abs({0})))",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "libdevice.rint({0})",
    "trunc": "libdevice.trunc({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "relu": "tl.maximum({0}, 0)",
    "not": "{0} == 0",
    "to_float": "{0}.to(tl.float32)",
    "to_int": "{0}.to(tl.int32)",
}
_BINARY: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "pow": "libdevice.pow({0}, {1})",
    "mod": "{0} - tl.floor({0} / {1}) * {1}",
    "floor_div": "tl.floor({0} / {1})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "where": "tl.where({0}, {1}, {2})",
}
_OF_INTEGERS = {
    "mod": "({0} % {1} + {1}) % {1}",
    "floor_div": "({0} - ({0} % {1} + {1}) % {1}) // {1}",
}
"""Triton rounds a quotient of integers to zero, PyTorch downwards."""
_SIZES = ("M", "N", "K")


def pointwise_statements(line: Line, address: Callable[[str], str]) -> list[str]:
    """The statements of an elementwise line.

    `address` rewrites the text of a position for the structure.
    """
    if line.op == INDEX:
        return [f"{line.name} = {address(line.arguments[0])}"]
    if line.op == "tanh_softplus":
        power = f"e{line.name[1:]}"
        return [
            f"{power} = tl.exp(tl.minimum({line.arguments[0]}, 20.0))",
            f"{line.name} = {power} * ({power} + 2.0) / ({power} * ({power} + 2.0) + 2.0)",
        ]
    if line.op == "to_float" and line.arguments[0].startswith(_SIZES):
        return [f"{line.name} = {line.arguments[0]} * 1.0"]
    whole = _OF_INTEGERS.get(line.op) if line.kind == "i" else None
    form = whole or _UNARY.get(line.op) or _BINARY[line.op]
    return [f"{line.name} = {form.format(*line.arguments)}"]


def identity(line: Line) -> str:
    """The value of masked elements in a reduction or scan, as Triton source."""
    of_scans = {"cumsum": "sum", "cumprod": "prod"}
    value = IDENTITY[of_scans.get(line.op.removesuffix(REVERSED), line.op)]
    if line.kind == "i" and not line.op.startswith("arg"):
        return {0.0: "0", 1.0: "1"}.get(value) or ("-2147483648" if value < 0 else "2147483647")
    return {0.0: "0.0", 1.0: "1.0"}.get(value) or (f'float("{value}")')


def loaded(line: Line, pointer: str, mask: str, policy: str = "") -> str:
    """A load as a float32, int64 or truth value. An empty `mask` means no mask.

    `policy` is an eviction policy of the cache.
    """
    cast = {"f": "tl.float32", "i": "tl.int64", "b": "tl.int1"}[line.kind]
    other = "0.0" if line.kind == "f" else "0"
    masked = f", mask={mask}, other={other}" if mask else ""
    kept = f', eviction_policy="{policy}"' if policy else ""
    return f"{line.name} = tl.load({pointer}{masked}{kept}).to({cast})"
