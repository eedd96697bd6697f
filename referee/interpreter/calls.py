"""Calls of Triton's functions in a kernel's text: name, arguments, and kind of atomic or load."""

from __future__ import annotations

import ast
from typing import TypeGuard

_MODULES = frozenset({"tl", "tl.math", "libdevice", "math", "triton"})
_MASK_PLACE, _BOUNDARY_PLACE, _VOLATILE_PLACE = 1, 3, 7
"""Positions among the arguments of a load; the value of hidden lanes follows the first two."""


def callee_and_args(call: ast.Call) -> tuple[str, list[ast.expr]]:
    """The name and positional arguments of a call; a method counts as a function of Triton's."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) not in _MODULES:
        return f"tl.{call.func.attr}", [call.func.value, *call.args]
    return ast.unparse(call.func), call.args


def is_atomic(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether the node calls an atomic operation."""
    return isinstance(node, ast.Call) and callee_and_args(node)[0].startswith("tl.atomic_")


def is_volatile(node: ast.AST) -> bool:
    """Whether the node is a load that may be volatile."""
    if not isinstance(node, ast.Call) or callee_and_args(node)[0] != "tl.load":
        return False
    given = _given(node, _VOLATILE_PLACE, "volatile")
    return any(not (isinstance(one, ast.Constant) and not one.value) for one in given)


def leaves_lanes_open(node: ast.AST) -> bool:
    """Whether the node is a load with a mask or boundary check and without a value for others."""
    if not isinstance(node, ast.Call) or callee_and_args(node)[0] != "tl.load":
        return False
    masked = _given(node, _MASK_PLACE, "mask") and not _given(node, _MASK_PLACE + 1, "other")
    bounded = _given(node, _BOUNDARY_PLACE, "boundary_check") and not _given(
        node, _BOUNDARY_PLACE + 1, "padding_option"
    )
    return bool(masked or bounded)


def _given(call: ast.Call, place: int, name: str) -> list[ast.expr]:
    given = [
        *callee_and_args(call)[1][place:][:1],
        *(keyword.value for keyword in call.keywords if keyword.arg == name),
    ]
    return [one for one in given if not (isinstance(one, ast.Constant) and one.value is None)]
