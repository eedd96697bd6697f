"""A hash of what a kernel source does, blind to names: two sources that differ only in names and spacing agree.

Parameters, locals and functions are numbered in order of appearance. Host-side argument names of `run` are kept apart
from attributes (`x.shape`), which stay. Keyword arguments of launches follow the kernel's parameters.
"""

from __future__ import annotations

import ast
import hashlib

_KEPT = {"tl", "triton", "torch", "run", "range", "min", "max", "float", "int", "len", "None", "True", "False"}
_LAUNCH_OPTIONS = {"num_warps", "num_stages", "mask", "other", "axis", "dtype", "device"}


class _Renamer(ast.NodeTransformer):
    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def _new(self, name: str) -> str:
        return name if name in _KEPT else self.names.setdefault(name, f"v{len(self.names)}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._new(node.arg)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._new(node.id)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg is not None and node.arg not in _LAUNCH_OPTIONS:
            node.arg = self._new(node.arg)
        self.generic_visit(node)
        return node


def canonical(source: str) -> str:
    """The source with its names numbered. Raises SyntaxError."""
    return ast.unparse(_Renamer().visit(ast.parse(source)))


def canonical_hash(source: str) -> str:
    """16 hex digits of the canonical form."""
    return hashlib.sha256(canonical(source).encode()).hexdigest()[:16]
