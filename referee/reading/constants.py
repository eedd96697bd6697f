"""Module-level constants that kernels use: the expressions that may stand there, and the kinds of
their values.

Nothing is evaluated here. The expressions are copied into the clean kernel module and evaluated in
the sandbox.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from referee.reading.kernel_error import KernelError, constant_error
from referee.reading.kernel_vocabulary import MATH, TL_DTYPES, TRITON_HELPERS
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

# Triton lets a kernel read a global only if it is a constexpr or a dtype; a plain number may stand
# in a default.
Kind = Literal["constexpr", "dtype", "plain"]

MAX_INT = 1 << 64
MAX_TEXT = 200

_FUNCTIONS = {f"math.{name}" for name in MATH} | {f"triton.{name}" for name in TRITON_HELPERS}
_CONVERSIONS = frozenset({"float", "int", "bool", "min", "max", "abs"})
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_BITWISE = (ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)


@dataclass(frozen=True)
class Constant:
    """One constant: its expression, its kind, and the other constants in it."""

    value: ast.expr
    kind: Kind
    uses: tuple[str, ...]


def check_literal(node: ast.Constant) -> None:
    """Refuse literals that no kernel needs: bytes, complex numbers, huge integers, long strings."""
    value = node.value
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return
    if isinstance(value, int) and abs(value) < MAX_INT:
        return
    if isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable():
        return
    raise KernelError(
        "this literal is not a number of at most 64 bits or a short string", node=node
    )


def canonical_node(name: str, at: ast.AST) -> ast.expr:
    """The node of the dotted `name`, at the place of the node `at`."""
    first, *rest = name.split(".")
    node: ast.expr = ast.Name(first, ast.Load())
    for part in rest:
        node = ast.Attribute(node, part, ast.Load())
    return ast.fix_missing_locations(ast.copy_location(node, at))


def read_constant(
    expression: ast.expr, scope: Scope, resolve: Callable[[str, ast.AST], Constant]
) -> Constant:
    """Check a constant's expression. `resolve` finds the constants in it. Raises KernelError."""
    reader = _Reader(scope, resolve)
    value, kind = reader.read(expression)
    return Constant(value, kind, tuple(dict.fromkeys(reader.uses)))


class _Reader:
    def __init__(self, scope: Scope, resolve: Callable[[str, ast.AST], Constant]) -> None:
        self._scope = scope
        self._resolve = resolve
        self.uses: list[str] = []

    def read(self, node: ast.expr) -> tuple[ast.expr, Kind]:
        if isinstance(node, ast.Constant):
            check_literal(node)
            return node, "plain"
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name(node)
        if isinstance(node, ast.UnaryOp):
            operand, kind = self.read(node.operand)
            return ast.copy_location(ast.UnaryOp(node.op, operand), node), kind
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC + _BITWISE):
            left, left_kind = self.read(node.left)
            right, right_kind = self.read(node.right)
            joined: Kind = "constexpr" if "constexpr" in (left_kind, right_kind) else "plain"
            return ast.copy_location(ast.BinOp(left, node.op, right), node), joined
        if isinstance(node, ast.Tuple):
            elements = [self.read(element)[0] for element in node.elts]
            return ast.copy_location(ast.Tuple(elements, ast.Load()), node), "plain"
        if isinstance(node, ast.Call) and not node.keywords:
            return self._call(node)
        raise constant_error(
            "a constant that a kernel uses must be a literal or simple arithmetic on literals", node
        )

    def _name(self, node: ast.expr) -> tuple[ast.expr, Kind]:
        full = dotted(node, self._scope.aliases)
        if full is not None and full.startswith("tl.") and full[3:] in TL_DTYPES:
            return canonical_node(full, node), "dtype"
        if full is not None and full.startswith("math.") and full[5:] in MATH:
            return canonical_node(full, node), "plain"
        if full is None and isinstance(node, ast.Name):
            kind = self._resolve(node.id, node).kind
            self.uses.append(node.id)
            return ast.copy_location(ast.Name(node.id, ast.Load()), node), kind
        raise constant_error(
            f"`{ast.unparse(node)}` cannot stand in a constant that a kernel uses", node
        )

    def _call(self, node: ast.Call) -> tuple[ast.expr, Kind]:
        full = dotted(node.func, self._scope.aliases)
        arguments = [self.read(argument) for argument in node.args]
        kinds: list[Kind] = [kind for _, kind in arguments]
        if full == "tl.constexpr" and len(arguments) == 1:
            kind: Kind = "constexpr"
        elif isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS - self._scope.rebound:
            full, kind = node.func.id, "plain"
        elif full is not None and full in _FUNCTIONS:
            kind = "constexpr" if "constexpr" in kinds else "plain"
        else:
            raise constant_error(
                f"`{ast.unparse(node.func)}(...)` cannot stand in a constant that a kernel uses",
                node,
            )
        call = ast.Call(canonical_node(full, node), [value for value, _ in arguments], [])
        return ast.copy_location(call, node), kind
