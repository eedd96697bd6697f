"""Extracts the text of a reference: its function or class, and the top-level names that it uses."""

from __future__ import annotations

import ast
import inspect
from typing import Any


def source_of(made_of: Any, text: str) -> str:
    """The part of the file's text for this object; its own text from another one."""
    name = getattr(made_of, "__name__", "")
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    bound = _bound(tree)
    if name not in bound:
        try:
            return inspect.cleandoc(inspect.getsource(made_of))
        except (OSError, TypeError):
            return ""
    wanted: set[ast.stmt] = set()
    pending = [name]
    while pending:
        for statement in bound.get(pending.pop(), []):
            if statement not in wanted:
                wanted.add(statement)
                pending += sorted(
                    {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                )
    lines = text.splitlines()
    return (
        "\n\n".join(_text(statement, lines) for statement in tree.body if statement in wanted)
        + "\n"
    )


def _bound(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        match statement:
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                names = [name]
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names = [(alias.asname or alias.name).partition(".")[0] for alias in aliases]
            case (
                ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.If() | ast.Try() | ast.With()
            ):
                names = [
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                ]
                imports = [node for node in ast.walk(statement) if isinstance(node, ast.ImportFrom)]
                names += [alias.asname or alias.name for node in imports for alias in node.names]
            case _:
                continue
        for name in names:
            found.setdefault(name, []).append(statement)
    return found


def _text(statement: ast.stmt, lines: list[str]) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(lines[first - 1 : statement.end_lineno])
