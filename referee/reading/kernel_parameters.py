"""Questions about one parameter or variable of a kernel, one option of its decorator, and its calls."""

from __future__ import annotations

import ast
from collections.abc import Container

from referee.reading.kernel_error import syntax_error
from referee.reading.kernel_vocabulary import TL_DTYPES
from referee.reading.module_scope import Scope

_TYPES = frozenset({"bool", "float", "int", "str"})
_NUMBERS = TL_DTYPES | {"bool_", "half", "double", "short", "long", "char", "bool", "int", "float"}


def means_nothing(node: ast.expr) -> bool:
    """True for an annotation such as `Optional[torch.Tensor]`, which Triton ignores."""
    text = ast.unparse(node)
    return (
        not any(isinstance(part, ast.Call) for part in ast.walk(node))
        and "const" not in text
        and text.split(".")[-1] not in _NUMBERS
    )


def is_constexpr(annotation: ast.expr | None) -> bool:
    """True for the annotation `tl.constexpr`."""
    return annotation is not None and ast.unparse(annotation) == "tl.constexpr"


def is_simple_literal(node: ast.expr) -> bool:
    """True for a bool, a whole number or a text, or a list or tuple of numbers and texts."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(
            isinstance(element, ast.Constant) and type(element.value) in (int, str)
            for element in node.elts
        )
    return isinstance(node, ast.Constant) and type(node.value) in (bool, int, str)


def reaches(name: str, calls: dict[str, set[str]], wanted: set[str]) -> bool:
    """True if `name` calls one of `wanted`, directly or through others."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current in wanted:
            return True
        if current not in seen:
            seen.add(current)
            pending.extend(calls.get(current, ()))
    return False


def check_annotation(annotation: ast.expr, scope: Scope, known: Container[str]) -> None:
    """Raise KernelError unless a variable's annotation is a type, perhaps of others."""
    for node in _parts(annotation):
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            continue
        root = _root(node)
        plain = root in scope.aliases or (
            isinstance(node, ast.Name) and root in _TYPES and root not in scope.rebound
        )
        if root is None or not plain or root in known:
            reason = "Triton evaluates a variable's annotation: only a type's name may stand there"
            raise syntax_error(f"annotation `{ast.unparse(annotation)[:60]}`: {reason}", annotation)


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Subscript):
        return [node.value, *_parts(node.slice)]
    if isinstance(node, (ast.Tuple, ast.List)):
        return [part for element in node.elts for part in _parts(element)]
    return [node]


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
