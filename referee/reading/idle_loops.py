"""Loops of a kernel that read the same elements in every turn, because nothing uses their variable.

A loop that moves its pointers or offsets itself reads other elements each time. So the check looks
for names that the loop updates and that loads or stores use. Limits: names are followed within the
loop only.
"""

from __future__ import annotations

import ast

from referee.reading.source import tree_of


def idle_loop(text: str) -> str:
    """The variable of the first such loop, or "". One that begins with `_` does not count."""
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            name = node.target.id
            if not name.startswith("_") and _loads(node) and not _moves(node, name):
                return name
    return ""


def _loads(loop: ast.For) -> bool:
    return any(_is_access(node) for statement in loop.body for node in ast.walk(statement))


def _is_access(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("load", "store")
    )


def _moves(loop: ast.For, variable: str) -> bool:
    """True if the body uses the variable, or an access depends on a name that the body updates."""
    used = _names(loop.body, ast.Load)
    if variable in used:
        return True
    asked: set[str] = set()
    for statement in loop.body:
        for node in ast.walk(statement):
            if _is_access(node):
                assert isinstance(node, ast.Call)
                asked |= _names([*node.args, *(word.value for word in node.keywords)], ast.Load)
    given: dict[str, set[str]] = {}
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                own = {node.target.id, *_names([node.value], ast.Load)}
                given.setdefault(node.target.id, set()).update(own)
            elif isinstance(node, ast.Assign):
                for target in _names(node.targets, ast.Store):
                    given.setdefault(target, set()).update(_names([node.value], ast.Load))
    while more := {name for one in asked & given.keys() for name in given[one]} - asked:
        asked |= more
    return any(name in given[name] for name in asked & given.keys())


def _names(nodes: list[ast.expr] | list[ast.stmt], context: type[ast.expr_context]) -> set[str]:
    return {
        node.id
        for one in nodes
        for node in ast.walk(one)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }
