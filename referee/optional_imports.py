"""Modules that a file does without when they cannot be imported: traces are made as if none could be, all, and each one with or without
the others.

Which of them a user has, and of which version, is not known, so that what `run` does may not depend on it. Runs in the trace worker.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from referee.module_scope import is_main_guard
from referee.names import is_known_module

MAX_OPTIONAL = 12


class _Module(ModuleType):
    """A module of which everything can be imported but what is `absent`, and nothing used; it has a version."""

    def __init__(self, name: str, absent: frozenset[str]) -> None:
        super().__init__(name)
        self._absent = absent
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full in self._absent:
            raise AttributeError(name)
        if name == "__version__":
            # The screen lets no file read it, for a trace could not be made with every version.
            return "0"
        if name.startswith("__"):
            raise AttributeError(name)
        return _Module(full, self._absent)


@dataclass(frozen=True)
class OptionalImports:
    """What a file imports and not everybody has: modules, with those that they are parts of, and dotted names from them."""

    modules: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Modules and names."""
        return self.modules | self.names

    def mixtures(self) -> Iterator[frozenset[str]]:
        """What may be there: everything, and each module and name without the others, and the others without it."""
        yield self.all
        for one in sorted(self.all):
            yield frozenset(other for other in self.all if _is_part(one, other))
            yield frozenset(other for other in self.all if not _is_part(other, one))


def _is_part(inner: str, outer: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


def optional_imports(tree: ast.Module) -> OptionalImports:
    """What a file imports that not everybody has, other than below its main guard."""
    modules: set[str] = set()
    names: set[str] = set()
    for node in (node for statement in tree.body if not is_main_guard(statement) for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if not _is_everywhere(node.module))
    parts = (name.split(".") for name in modules if not _is_everywhere(name))
    within = {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}
    return OptionalImports(frozenset(name for name in within if not _is_everywhere(name)), frozenset(names))


def _is_everywhere(name: str) -> bool:
    return is_known_module(name) or name.partition(".")[0] in sys.stdlib_module_names


@contextmanager
def pretended_modules(optional: OptionalImports, present: frozenset[str]) -> Iterator[None]:
    """While the context lasts what is present can be imported, and the rest cannot."""
    missing = object()
    saved = {name: sys.modules.get(name, missing) for name in optional.modules}
    for name in optional.modules:
        stub = _Module(name, optional.all - present)
        sys.modules[name] = stub if name in present else None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, module in saved.items():
            if module is missing:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module  # type: ignore[assignment]
