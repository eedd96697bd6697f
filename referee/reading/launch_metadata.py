"""`@triton.jit(launch_metadata=describe)`: a function of the file that Triton hands a launch to when a profiler asks, and never else.

Its answer goes to the profiler. So it stays out of the clean kernels, and may make texts of what it is given, where nothing else of the
file can get at them. In all else it is host code like any other: a user's profiler runs it.
"""

from __future__ import annotations

import ast

from referee.reading.module_scope import Scope
from referee.reading.names import dotted

OPTION = "launch_metadata"


def named(function: ast.FunctionDef, scope: Scope) -> str | None:
    """The name of the function that describes a kernel's launches; None without one, and for anything else than a plain function."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and dotted(decorator.func, scope.aliases) == "triton.jit":
            for keyword in decorator.keywords:
                if keyword.arg == OPTION and isinstance(keyword.value, ast.Name):
                    return keyword.value.id if _is_plain(keyword.value.id, scope) else None
    return None


def shown(tree: ast.Module, scope: Scope) -> frozenset[int]:
    """The nodes, by identity, of functions that describe launches and do nothing else."""
    describe = [name for function in scope.functions.values() if (name := named(function, scope)) is not None]
    read = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    only = {name for name in describe if read.count(name) == describe.count(name)}
    return frozenset(id(node) for name in only for statement in scope.functions[name].body for node in ast.walk(statement))


def _is_plain(name: str, scope: Scope) -> bool:
    return name in scope.functions and name not in scope.rebound and not scope.functions[name].decorator_list
