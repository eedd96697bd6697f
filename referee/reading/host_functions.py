"""What is written around the body of a host function: its parameters, their values where none are given, and annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from referee.reading.host_refused import HostRefused

_IN_ANNOTATIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.BitOr, ast.UnaryOp, ast.USub)


def arguments(node: ast.arguments) -> Iterator[ast.arg]:
    """Every parameter of a function."""
    yield from (*node.posonlyargs, *node.args, *node.kwonlyargs)
    yield from (argument for argument in (node.vararg, node.kwarg) if argument is not None)


def stored(root: ast.AST) -> Iterator[str]:
    """The names that are bound anywhere below a node."""
    for node in ast.walk(root):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name:
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def defaults(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The values of parameters that are not given."""
    yield from (*function.args.defaults, *(default for default in function.args.kw_defaults if default is not None))


def check_annotations(function: ast.FunctionDef) -> None:
    """Raise HostRefused unless the annotations of parameters and result only name types: Python evaluates them."""
    for annotation in (*(argument.annotation for argument in arguments(function.args)), function.returns):
        if annotation is not None:
            check_annotation(annotation)


def check_annotation(annotation: ast.expr) -> None:
    """The same for one."""
    for node in ast.walk(annotation):
        if not isinstance(node, (*_IN_ANNOTATIONS, ast.expr_context)):
            raise HostRefused("statement", f"`{ast.unparse(annotation)[:60]}` as an annotation does more than to name a type", annotation)
