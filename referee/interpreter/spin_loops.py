"""Finds loops in which a program waits for another program, from the kernels' text. Torch-free."""

from __future__ import annotations

import ast

MOST = 60
"""Maximum number of characters of a loop's head in a message."""


def find_spin_loop(text: str) -> str:
    """The head of the first loop that an atomic or a volatile load keeps running, or ""."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.While) and _asks(node):
            return f"while {ast.unparse(node.test)}"[:MOST]
    return ""


def _asks(loop: ast.While) -> bool:
    return any(_shared(node) for part in (loop.test, *loop.body) for node in ast.walk(part))


def _shared(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    volatile = any(
        word.arg == "volatile" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in node.keywords
    )
    return node.func.attr.startswith("atomic_") or (node.func.attr == "load" and volatile)
