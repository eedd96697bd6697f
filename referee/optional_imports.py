"""Modules that a file does without when they cannot be imported: a trace is made as if none could be, and another as if all could.

Which of them a user has is not known, so that what `run` does may not depend on it. Runs in the trace worker.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from referee.names import is_known_module


class _Module(ModuleType):
    """A module of which everything can be imported, and nothing used; it has a version."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            # The screen lets no file read it, for a trace could not be made with every version.
            return "0"
        if name.startswith("__"):
            raise AttributeError(name)
        return _Module(f"{self.__name__}.{name}")


def optional_modules(tree: ast.AST) -> frozenset[str]:
    """The modules that a file names in its imports and that not everybody has, with those that they are parts of."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    parts = (name.split(".") for name in names if not _is_everywhere(name))
    return frozenset(".".join(one[:end]) for one in parts for end in range(1, len(one) + 1) if not _is_everywhere(".".join(one[:end])))


def _is_everywhere(name: str) -> bool:
    return is_known_module(name) or name.partition(".")[0] in sys.stdlib_module_names


@contextmanager
def pretended_modules(names: Collection[str], *, present: bool) -> Iterator[None]:
    """While the context lasts these modules can be imported, or cannot."""
    missing = object()
    saved = {name: sys.modules.get(name, missing) for name in names}
    for name in names:
        stub = _Module(name)
        stub.__path__ = []
        sys.modules[name] = stub if present else None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, module in saved.items():
            if module is missing:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module  # type: ignore[assignment]
