"""Calls of Triton's functions in a kernel's text: which it is, of what, and whether it is an atomic or a volatile load."""

from __future__ import annotations

import ast
from typing import TypeGuard

_MODULES = frozenset({"tl", "tl.math", "libdevice", "math", "triton"})
_VOLATILE_PLACE = 7


def parts(call: ast.Call) -> tuple[str, list[ast.expr]]:
    """A call's name, as a function of Triton's if it is a method, and what is given by position."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) not in _MODULES:
        return f"tl.{call.func.attr}", [call.func.value, *call.args]
    return ast.unparse(call.func), call.args


def is_atomic(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it is a call of an atomic."""
    return isinstance(node, ast.Call) and parts(node)[0].startswith("tl.atomic_")


def is_volatile(node: ast.AST) -> bool:
    """Whether it is a load that may be volatile."""
    if not isinstance(node, ast.Call) or parts(node)[0] != "tl.load":
        return False
    by_place = parts(node)[1][_VOLATILE_PLACE:][:1]
    given = [*by_place, *(keyword.value for keyword in node.keywords if keyword.arg == "volatile")]
    return any(not (isinstance(one, ast.Constant) and not one.value) for one in given)
