"""Why host code cannot be judged, as an exception with the guard that says so."""

from __future__ import annotations

import ast


class HostRefused(ValueError):
    """Host code that would fail later: the guard, and one line of advice."""

    def __init__(self, guard: str, reason: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.guard = guard
