"""Arithmetic on bounds of integers: the least and the largest value that an expression may have."""

from __future__ import annotations

import ast

Bounds = tuple[float, float]


def is_exact(bounds: Bounds) -> bool:
    """Whether there is one value."""
    return bounds[0] == bounds[1]


def combined(op: ast.operator, one: Bounds, other: Bounds) -> Bounds | None:
    """The bounds of an operation on two integers; None if they are not known."""
    match op:
        case ast.Add():
            return one[0] + other[0], one[1] + other[1]
        case ast.Sub():
            return one[0] - other[1], one[1] - other[0]
        case ast.Mult():
            products = [a * b for a in one for b in other]
            return min(products), max(products)
        case ast.FloorDiv() if other[0] > 0:
            quotients = [a // b for a in one for b in other]
            return min(quotients), max(quotients)
        case ast.Mod() if other[0] > 0:
            if is_exact(one) and is_exact(other):
                return one[0] % other[0], one[0] % other[0]
            return 0, other[1] - 1
        case _ if is_exact(one) and is_exact(other):
            left, right = int(one[0]), int(other[0])
            of_integers = {
                ast.BitAnd: int.__and__, ast.BitOr: int.__or__, ast.BitXor: int.__xor__,
                **({ast.LShift: int.__lshift__, ast.RShift: int.__rshift__} if 0 <= right < 64 else {}),
            }  # fmt: skip
            exact = of_integers.get(type(op))
            return None if exact is None else (exact(left, right), exact(left, right))
    return None


def turned(op: ast.unaryop, inside: Bounds) -> Bounds | None:
    """The bounds of a sign or of inverted bits; None if they are not known."""
    match op:
        case ast.USub():
            return -inside[1], -inside[0]
        case ast.Invert():
            return -inside[1] - 1, -inside[0] - 1
        case ast.UAdd():
            return inside
    return None


def called(name: str, given: list[Bounds], count: int) -> Bounds | None:
    """The bounds of a call with `count` arguments; None if they are not known."""
    if len(given) != count or not given:
        return None
    match name, given:
        case "arange", [first, last]:
            return first[0], last[1] - 1
        case "cdiv", [one, other] if other[0] > 0:
            return -(-one[0] // other[1]), -(-one[1] // other[0])
        case (("minimum" | "min"), [one, other]):
            return min(one[0], other[0]), min(one[1], other[1])
        case (("maximum" | "max"), [one, other]):
            return max(one[0], other[0]), max(one[1], other[1])
    return None
