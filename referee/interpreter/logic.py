"""`and`, `or` and `not` as a kernel means them: elementwise on tensors, where Python asks a whole tensor for one truth value.

Constants decide as in Python, from left to right; tensors are all evaluated. So does Triton's compiler (`visit_BoolOp`). Names that
begin with two underscores are free, because no kernel may use them. Runs in the interpreter worker.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import triton.language as tl

Part = Callable[[], Any]


def both(*parts: Part) -> Any:
    """`a and b and ...`"""
    return _joined(parts, False)


def either(*parts: Part) -> Any:
    """`a or b or ...`"""
    return _joined(parts, True)


def negated(value: Any) -> Any:
    """`not value`"""
    return value == 0 if isinstance(value, tl.tensor) else not value


NAMES: dict[str, Callable[..., Any]] = {"__both": both, "__either": either, "__negated": negated}


def elementwise(text: str) -> str:
    """The text of a kernel module with every `and`, `or` and `not` as a call of a function in NAMES."""
    return ast.unparse(ast.fix_missing_locations(_Calls().visit(ast.parse(text))))


def larger(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """The combiner of `tl.argmax` and `tl.max(..., return_indices=True)`, which is written with `and` and `or`."""
    return _picked(value1 > value2, value1, index1, value2, index2, tie_break_left)


def smaller(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """As `larger`, for the minimum."""
    return _picked(value1 < value2, value1, index1, value2, index2, tie_break_left)


def _picked(first: Any, value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    if tie_break_left:
        first = first | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)


def _joined(parts: tuple[Part, ...], decisive: bool) -> Any:
    found: Any = None
    value: Any = None
    for part in parts:
        value = part()
        if not isinstance(value, tl.tensor):
            if bool(value) is decisive:
                return value
        elif found is None:
            found = value
        else:
            found = (found != 0) | (value != 0) if decisive else (found != 0) & (value != 0)
    return value if found is None else found


class _Calls(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """A call with one function without arguments for each part."""
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        name = "__both" if isinstance(node.op, ast.And) else "__either"
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [ast.Lambda(nothing, value) for value in node.values], []), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """A call for `not`."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name("__negated", ast.Load()), [node.operand], []), node)
