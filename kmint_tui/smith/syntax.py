"""Parsing Python text that a model wrote: never raises, never warns."""

from __future__ import annotations

import ast


def parse(source: str) -> ast.Module | None:
    """The syntax tree, or None when the text is not Python (or is too deep or too odd for the parser)."""
    from referee.reading.source import tree_of

    try:
        return tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
