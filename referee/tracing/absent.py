"""Modules that a file imports and that are not installed here. The file may import them, and call
them at import, but `run` may not use them.

Code of the file that does not run does not count. Where a call reaches such a module, the tracer
cannot know the launch. That is no fault of the kernel, and the verdict says so. The referee's own
modules count as not installed. Runs in the trace worker.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from referee.reading.module_scope import is_main_guard

_OURS = frozenset({"referee", "kmint_tui", "convert"})
_ASKING = """
    " instancecheck subclasscheck bool int float index len iter contains enter exit getitem add
    radd sub rsub mul rmul floordiv rfloordiv mod rmod truediv neg hash str format
""".split()


class Absent:
    """The missing modules that a file imports; `used` has those that `run` or a choice reached."""

    def __init__(self, tree: ast.Module) -> None:
        self.running = False
        self.used: list[str] = []
        body = [one for one in tree.body if not is_main_guard(one)]
        plain = _plain_imports(body)
        tried = _names(node for one in body for node in _tried_imports(one))
        needed = (_names(plain) - tried) | _names(body)
        self.relative = any(isinstance(node, ast.ImportFrom) and node.level for node in plain)
        self.names = {part for name in needed if not _is_here(name) for part in _parts(name)}
        self.tried = {name for name in tried - needed if not _is_loaded(name)}
        """Modules that the file can do without. No trace imports them."""

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Make the missing modules importable while the context lasts; optional ones fail."""
        missing = object()
        saved = {name: sys.modules.get(name, missing) for name in self.names | self.tried}
        usual = builtins.__import__

        def importing(
            name: str, given: Any = None, known: Any = None, wanted: Any = (), level: int = 0
        ) -> Any:
            if level and given and "__path__" not in given:
                return _Module("." * level + name, self)
            return usual(name, given, known, wanted, level)

        sys.modules.update({name: _Module(name, self) for name in self.names})
        sys.modules.update(dict.fromkeys(self.tried))  # type: ignore[arg-type]
        if self.relative:
            builtins.__dict__["__import__"] = importing
        try:
            yield
        finally:
            builtins.__dict__["__import__"] = usual
            for name, module in saved.items():
                if module is missing:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module  # type: ignore[assignment]


class _Module(ModuleType):
    def __init__(self, name: str, absent: Absent) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__["_absent"] = absent

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing(f"{self.__name__}.{name}", self.__dict__["_absent"])


class _Thing:
    """A name of a missing module. The file may call it, compare it and decorate with it at import.
    A decision on it counts as a use.
    """

    def __init__(self, name: str, absent: Absent) -> None:
        self.__dict__.update(_name=name, _absent=absent)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing(f"{self._name}.{name}", self._absent)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._absent.running:
            self._absent.used.append(self._name)
        return _Thing(f"{self._name}(...)", self._absent)

    def _compared(self, other: object) -> Any:
        return _Thing(self._name, self._absent)

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __ne__ = _compared


def _used(thing: Any, *others: Any) -> Any:
    thing._absent.used.append(thing._name)
    raise ModuleNotFoundError(f"{thing._name} is not installed here")


for _name in _ASKING:
    setattr(_Thing, f"__{_name}__", _used)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def _parts(name: str) -> Iterator[str]:
    words = name.split(".")
    return (".".join(words[:end]) for end in range(1, len(words) + 1))


def _tried_imports(statement: ast.stmt) -> Iterator[ast.AST]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Try, ast.TryStar)):
            yield from (inner for part in node.body for inner in ast.walk(part))


def _plain_imports(body: list[ast.stmt]) -> list[ast.Import | ast.ImportFrom]:
    found, pending = list[ast.Import | ast.ImportFrom](), list[ast.AST](body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        elif not isinstance(node, (ast.Try, ast.TryStar)):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _is_loaded(name: str) -> bool:
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or (root in sys.modules and root not in _OURS)


def _is_here(name: str) -> bool:
    root = name.partition(".")[0]
    if root in _OURS:
        return False
    if root in sys.modules or root in sys.stdlib_module_names:
        return sys.modules.get(root, root) is not None
    with suppress(ImportError, ValueError, AttributeError):
        return importlib.util.find_spec(root) is not None
    return False
