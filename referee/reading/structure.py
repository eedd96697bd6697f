"""The structure of a kernel in a clean module: its text without its names.

Kernels of one structure load the same elements, compute the same values and store them in the same
order. So they give the same results on the same data.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable

from referee.reading.source import tree_of


def structures(text: str) -> dict[str, Hashable]:
    """The structure of every function in a clean kernel module (`kernels.py`), by name."""
    module = tree_of(text)
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    dumped = {name: ast.dump(node) for name, node in functions.items()}
    rest = tuple(ast.dump(node) for node in module.body if not isinstance(node, ast.FunctionDef))
    found: dict[str, Hashable] = {}
    for name, function in functions.items():
        named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        helpers = tuple(dumped.values()) if named & functions.keys() else ()
        found[name] = rest, helpers, ast.dump(_Renamer(function).visit(function))
    return found


class _Renamer(ast.NodeTransformer):
    """Numbers the names that a function binds, in the order of the text, and drops its own name."""

    def __init__(self, function: ast.FunctionDef) -> None:
        stored = (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        bound = [
            *(one.arg for one in _parameters(function)),
            *(node.id for node in sorted(stored, key=_place)),
        ]
        # A number is no name in Python, so it cannot be a name of the module.
        self._names = {name: str(number) for number, name in enumerate(dict.fromkeys(bound))}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rename the function itself. Kernels have no inner functions."""
        node.name = ""
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Rename a parameter. Its annotation binds nothing."""
        node.arg = self._names[node.arg]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename a name, if the function binds it."""
        node.id = self._names.get(node.id, node.id)
        return node


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
