"""Operations on elements at the same place: arithmetic, comparison, logic, and choice."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph.aten.table import entry, value_of
from kmint_tui.graph.expressions import Constant
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.values import Value

_UNARY = {
    "neg": "neg", "abs": "abs", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "reciprocal": "recip", "sin": "sin", "cos": "cos", "erf": "erf", "tanh": "tanh",
    "sigmoid": "sigmoid", "silu": "silu", "floor": "floor", "ceil": "ceil", "round": "round",
    "trunc": "trunc", "sign": "sign", "relu": "relu", "logical_not": "not",
}  # fmt: skip
_BINARY = {
    "mul": "mul", "div": "div", "true_divide": "div", "maximum": "maximum", "minimum": "minimum",
    "fmax": "maximum", "fmin": "minimum", "pow": "pow", "eq": "eq", "ne": "ne", "lt": "lt",
    "le": "le", "gt": "gt", "ge": "ge", "logical_and": "and", "logical_or": "or", "logical_xor": "xor",
    "remainder": "mod",
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SHORT = ("uint8", "int8", "int16")
_KEEP_INTEGERS = ("neg", "abs", "relu", "not", "sign")
"""Operations of one argument that do not turn integers into floats."""


def binary(op: str, left: Any, right: Any) -> Value:
    """An operation of two arguments, computed on floats if one of them is a float."""
    first, second = value_of(left), value_of(right)
    if "f" in (first.kind, second.kind) or op in ("div", "pow"):
        first, second = v.to_float(first), v.to_float(second)
    dtype = None if op in _COMPARISONS else _float_dtype(first, second)
    return v.pointwise(op, first, second, dtype=dtype)


def _float_dtype(first: Value, second: Value) -> str | None:
    """The dtype of the first float that has dimensions; None without one."""
    floats = [value.dtype for value in (first, second) if value.kind == "f" and value.dims]
    return floats[0] if floats else None


def unary(op: str, x: Any) -> Value:
    """An operation of one argument. Integers become floats if the result is a float."""
    value = value_of(x)
    if op not in _KEEP_INTEGERS:
        value = v.to_float(value)
    return v.pointwise(op, value, dtype=value.dtype)


def _rounded(op: str, x: Any, y: Any, *, rounding_mode: str | None = None) -> Value:
    """A binary operation of ATen; only a division has a rounding mode."""
    made = binary(op, x, y)
    if rounding_mode is None:
        return made
    if value_of(x).kind != "f" and value_of(y).kind != "f":
        return v.pointwise("floor_div", value_of(x), value_of(y))
    return unary({"floor": "floor", "trunc": "trunc"}[rounding_mode], made)


def _of_bits(op: str, x: Any, y: Any) -> Value:
    """Logic of truth values. On integers: an `and` with consecutive bits, as in packed numbers.

    Raises OutOfScope for other operations on bits.
    """
    first, second = value_of(x), value_of(y)
    if first.kind == second.kind == "b":
        return binary(op, first, second)
    if isinstance(first.expression, Constant):
        first, second = second, first
    mask = second.expression
    if op != "and" or not isinstance(mask, Constant) or first.kind != "i" or mask.value < 1:
        raise OutOfScope(f"a bitwise {op} of integers")
    low = (int(mask.value) & -int(mask.value)).bit_length() - 1
    high = int(mask.value).bit_length()
    if int(mask.value) != (1 << high) - (1 << low):
        raise OutOfScope("a bitwise and with bits that are apart")
    kept = _divided("mod", first, 1 << high)
    return v.pointwise("sub", kept, _divided("mod", first, 1 << low)) if low else kept


def _divided(op: str, x: Value, number: int) -> Value:
    """A quotient rounded down, or its remainder. Floats hold those of short integers exactly."""
    if x.dtype not in _SHORT:
        return v.pointwise(op, x, v.constant(number))
    found = v.to_float(x)
    down = unary("floor", binary("div", found, float(number)))
    made = down if op == "floor_div" else binary("sub", found, binary("mul", down, float(number)))
    return replace(v.pointwise("to_int", made), dtype=x.dtype)


def _shifted(op: str, x: Any, y: Any) -> Value:
    """Bits moved by a constant: a product with a power of two, or a quotient."""
    count = value_of(y).expression
    if not isinstance(count, Constant) or not 0 <= count.value < 63:
        raise OutOfScope("a shift of bits by a number that values decide")
    if op == "floor_div":
        return _divided(op, value_of(x), 1 << int(count.value))
    return v.pointwise(op, value_of(x), v.constant(1 << int(count.value)))


@entry("bitwise_not")
def _bitwise_not(x: Value) -> Value:
    if x.kind == "b":
        return unary("not", x)
    return v.pointwise("sub", v.constant(-1), x)


for _name in ("and", "or", "xor"):
    entry(f"bitwise_{_name}", f"__{_name}__")(partial(_of_bits, _name))
entry("__rshift__", "bitwise_right_shift")(partial(_shifted, "floor_div"))
entry("__lshift__", "bitwise_left_shift")(partial(_shifted, "mul"))
for _name, _op in _UNARY.items():
    entry(_name)(partial(unary, _op))
for _name, _op in _BINARY.items():
    entry(_name)(partial(_rounded, _op))


@entry("add")
def _add(x: Any, y: Any, alpha: float = 1) -> Value:
    return binary("add", x, binary("mul", y, alpha) if alpha != 1 else y)


@entry("sub")
def _sub(x: Any, y: Any, alpha: float = 1) -> Value:
    return binary("sub", x, binary("mul", y, alpha) if alpha != 1 else y)


@entry("rsub")
def _rsub(x: Any, y: Any, alpha: float = 1) -> Value:
    return _sub(y, x, alpha)


@entry("square")
def _square(x: Value) -> Value:
    return binary("mul", x, x)


@entry("log10")
def _log10(x: Value) -> Value:
    return binary("mul", unary("log", x), 1 / math.log(10))


@entry("tan")
def _tan(x: Value) -> Value:
    return binary("div", unary("sin", x), unary("cos", x))


@entry("sinh")
def _sinh(x: Value) -> Value:
    power = unary("expm1", x)
    return binary("mul", binary("add", power, binary("div", power, binary("add", power, 1.0))), 0.5)


@entry("cosh")
def _cosh(x: Value) -> Value:
    return binary("mul", binary("add", unary("exp", x), unary("exp", unary("neg", x))), 0.5)


@entry("atanh")
def _atanh(x: Value) -> Value:
    both = binary("sub", unary("log1p", x), unary("log1p", unary("neg", x)))
    return binary("mul", both, 0.5)


@entry("isnan")
def _isnan(x: Value) -> Value:
    return binary("ne", x, x)


@entry("isinf")
def _isinf(x: Value) -> Value:
    return binary("eq", unary("abs", x), math.inf)


@entry("where")
def where(condition: Value, x: Any, y: Any) -> Value:
    """`x` where the condition is true, else `y`."""
    first, second = value_of(x), value_of(y)
    if "f" in (first.kind, second.kind):
        first, second = v.to_float(first), v.to_float(second)
    return v.pointwise("where", condition, first, second, dtype=_float_dtype(first, second))


@entry("masked_fill")
def _masked_fill(x: Value, mask: Value, value: Any) -> Value:
    return where(mask, value, x)


@entry("lerp")
def _lerp(start: Value, end: Value, weight: Any) -> Value:
    return binary("add", start, binary("mul", weight, binary("sub", end, start)))


@entry("addcmul")
def _addcmul(x: Value, first: Value, second: Value, *, value: float = 1) -> Value:
    return binary("add", x, binary("mul", binary("mul", first, second), value))


@entry("addcdiv")
def _addcdiv(x: Value, first: Value, second: Value, *, value: float = 1) -> Value:
    return binary("add", x, binary("mul", binary("div", first, second), value))
