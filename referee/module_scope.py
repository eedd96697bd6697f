"""What the top level of a candidate binds: aliases of known modules, constants, functions.

A name counts only when it is bound once, at the top level: what is assigned twice, or declared `global` in a function,
has no value that can be read off the text.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from referee.names import PRELUDE, dotted, imported

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Scope:
    """Names of the top level. `aliases` maps to canonical dotted names, `rebound` are names bound more than once."""

    aliases: dict[str, str]
    assigned: dict[str, ast.expr]
    functions: dict[str, ast.FunctionDef]
    rebound: frozenset[str]


def read(tree: ast.Module) -> Scope:
    """The scope of a module's top level. Raises names.ImportRefused for an import that is not allowed."""
    aliases = dict(PRELUDE)
    assigned: dict[str, ast.expr] = {}
    functions: dict[str, ast.FunctionDef] = {}
    times: Counter[str] = Counter()
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name, canonical in imported(statement).items():
                times[name] += aliases.get(name) != canonical
                if name in PRELUDE and canonical != PRELUDE[name]:
                    times[name] += 1
                aliases[name] = canonical
            continue
        times.update(_bound_names(statement))
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = statement
        target, value = _single_assignment(statement)
        if target is not None and value is not None:
            assigned[target] = value
            canonical_name = dotted(value, aliases)
            if canonical_name is not None:
                aliases[target] = canonical_name
    rebound = {name for name, count in times.items() if count > 1 or (name in PRELUDE and count > 0)}
    rebound.update(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
    return Scope(aliases, assigned, functions, frozenset(rebound))


def _single_assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    return None, None


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            pending.extend(node.decorator_list)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
            pending.extend(ast.iter_child_nodes(node))
        elif not isinstance(node, _SCOPES):
            pending.extend(ast.iter_child_nodes(node))
