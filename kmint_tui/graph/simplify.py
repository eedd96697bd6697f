"""Simpler forms of operations: folded constants, no neutral elements, stable forms."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable

from kmint_tui.graph.expressions import Constant, Expression, Pointwise
from kmint_tui.graph.vocabulary import Kind

_COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_LARGEST = math.log(sys.float_info.max)
_FOLD: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp": lambda x: math.exp(x) if x < _LARGEST else math.inf,
    "log": math.log,
    "recip": lambda x: 1 / x,
}


def simplified(op: str, kind: Kind, arguments: tuple[Expression, ...]) -> Expression:
    """The operation on these arguments in its simplest form."""
    match op, arguments:
        case "mul", (a, Constant(value=1)) | (Constant(value=1), a) if a.kind == kind:
            return a
        case (("add" | "sub"), (a, Constant(value=0))) if a.kind == kind:
            return a
        case "add", (Constant(value=0), a) if a.kind == kind:
            return a
        case "div", (a, Constant(value=1)) if a.kind == kind:
            return a
        case "neg", (Constant(value=value),):
            return Constant(kind, -value)
        case "tanh", (Pointwise(op="softplus", arguments=inner),):
            return Pointwise("f", "tanh_softplus", inner)
        case "log1p", (Pointwise(op="exp", arguments=inner),):
            return Pointwise("f", "softplus", inner)
        case "log", (
            Pointwise(
                op="add", arguments=(Constant(value=1), Pointwise(op="exp", arguments=inner))
            ),
        ) | (
            Pointwise(
                op="add", arguments=(Pointwise(op="exp", arguments=inner), Constant(value=1))
            ),
        ):
            return Pointwise("f", "softplus", inner)
        case "to_float", (Constant(value=value),):
            return Constant("f", float(value))
        case "to_float", (a,) if a.kind == "f":
            return a
        case "to_float", (Pointwise(op="to_int", arguments=(a,)),) if _is_whole(a):
            return a
        case (("add" | "sub" | "mul" | "div"), (Constant(value=a), Constant(value=b))) if (
            op != "div" or b
        ):
            return Constant(
                kind,
                {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b if b else math.nan}[op],
            )
        case "pow", (base, Constant(value=exponent)):
            return _power(base, float(exponent), kind)
        case "where", (condition, Constant(value=True, kind="b"), Constant(value=False, kind="b")):
            return condition
        case "where", (Pointwise(op="not", arguments=(condition,)), a, b):
            return simplified("where", kind, (condition, b, a))
        case "where", (
            Pointwise(op="eq" | "ne" as same, arguments=pair),
            Constant() as number,
            a,
        ) if not isinstance(a, Constant):
            turned = Pointwise("b", "ne" if same == "eq" else "eq", pair)
            return Pointwise(kind, op, (turned, a, number))
        case "not", (Pointwise(op="not", arguments=(a,)),):
            return a
        case "and", (a, Constant(value=True)) | (Constant(value=True), a):
            return a
        case _, (Constant(value=a), Constant(value=b)) if op in _COMPARE:
            return Constant("b", _COMPARE[op](a, b))
        case _, (Constant(value=a),) if op in _FOLD and a > 0:
            return Constant("f", _FOLD[op](a))
    return Pointwise(kind, op, arguments)


def _is_whole(a: Expression) -> bool:
    """True for a float that is surely a whole number, made of short integers."""
    match a:
        case Pointwise(op="floor"):
            return True
        case Pointwise(op="to_float", arguments=(inner,)):
            return inner.kind != "f"
        case Pointwise(op="sub" | "mul", arguments=(one, other)):
            return _is_whole(one) and _is_whole(other)
    return isinstance(a, Constant) and float(a.value).is_integer()


def _power(base: Expression, exponent: float, kind: Kind) -> Expression:
    roots = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "recip"}
    if exponent in roots:
        return Pointwise("f", roots[exponent], (base,))
    if exponent == 1.0:
        return base
    if exponent in (2.0, 3.0, 4.0):
        square = Pointwise(base.kind, "mul", (base, base))
        if exponent == 2.0:
            return square
        return Pointwise(base.kind, "mul", (square, base) if exponent == 3.0 else (square, square))
    if exponent == -2.0:
        return Pointwise("f", "recip", (Pointwise(base.kind, "mul", (base, base)),))
    return Pointwise(kind, "pow", (base, Constant("f", exponent)))
