"""Constants that take too long to compute: `10 ** 10 ** 9`, huge shifts, endless texts.

The check computes every expression of literal numbers and texts as long as its value stays small.
It follows names that are bound to such values. It refuses an expression that grows larger, with its
line. Limits: the check ignores results of functions and loops. A time limit ends those
(`tracing/patience.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

MOST_BITS, MOST_ITEMS = 1 << 12, 1 << 20

Value = int | str | None
"""None stands for an unknown value."""


class Bomb(ValueError):
    """The expression at `node` grows too large; the message says which it is."""

    def __init__(self, node: ast.AST, what: str) -> None:
        text = " ".join(ast.unparse(node).split())
        line = getattr(node, "lineno", 1)
        super().__init__(
            f"line {line}: `{text[:60]}` is {what}, which takes too long to compute; "
            "write constants of at most 64 bits"
        )


def check(tree: ast.Module) -> None:
    """Raises Bomb for a constant expression that grows too large, wherever it stands."""
    known: dict[str, int | str] = {}
    for statement in _in_order(tree):
        for node in _own_expressions(statement):
            _value(node, known)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                _bind(known, name, _value(value, known))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _bind(known, name, _value(value, known))


def _bind(known: dict[str, int | str], name: str, value: Value) -> None:
    """Note the value of a name. The largest number that the name has had so far counts."""
    before = known.get(name)
    if isinstance(value, int) and isinstance(before, int):
        known[name] = max(value, before, key=abs)
    elif value is not None:
        known[name] = value


def _in_order(tree: ast.AST) -> list[ast.stmt]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    found: list[ast.expr] = []
    left: list[ast.AST] = [statement]
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            if isinstance(child, (ast.BinOp, ast.UnaryOp)):
                found.append(child)
            if not isinstance(child, ast.stmt):
                left.append(child)
    return found


def _value(node: ast.expr, known: Mapping[str, int | str]) -> Value:
    match node:
        case ast.Constant(value=bool(value)):
            return int(value)
        case ast.Constant(value=int(number)):
            return number
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(args=[only], keywords=[]) if _is_constexpr(node.func):
            return _value(only, known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = _value(operand, known)
            return -positive if isinstance(positive, int) else None
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(node, op, _value(left, known), _value(right, known))
    return None


def _is_constexpr(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("constexpr", "int")


def _combined(node: ast.BinOp, op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        bits, more = left.bit_length(), right.bit_length()
        match op:
            case ast.Pow() if right >= 0:
                _at_most(node, bits * right if abs(left) > 1 else 1)
                return int(left**right)
            case ast.LShift() if right >= 0:
                _at_most(node, bits + right if left else 0)
                return left << right
            case ast.Mult():
                _at_most(node, bits + more)
                return left * right
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.FloorDiv() if right:
                return left // right
        return None
    if isinstance(op, ast.Mult):
        for text, count in ((left, right), (right, left)):
            if isinstance(text, str) and isinstance(count, int):
                if len(text) * max(count, 0) > MOST_ITEMS:
                    raise Bomb(node, f"a text of {_about(len(text) * count)} characters")
    return None


def _at_most(node: ast.AST, bits: int) -> None:
    if bits > MOST_BITS:
        raise Bomb(node, f"a number of {_about(bits)} bits")


def _about(number: int) -> str:
    return (
        f"{number:,}"
        if number < 10**15
        else f"about 10 to the power of {len(bin(number)) * 3 // 10}"
    )
