"""Modules that a file does without when they cannot be imported: traces are made as if none could be, all, and each one with or without
the others.

Which of them a user has, and of which version, is not known, so that what `run` does may not depend on it. That is so of numpy, which
torch can do without, and of the parts of the standard library that some builds or systems lack; of a module
that every Python has, a name that is tried may be that of a later one, or be gone from it. Runs in the trace worker.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from referee.reading.host_vocabulary import MATH, STANDARD_WORDS
from referee.reading.module_scope import is_main_guard
from referee.reading.names import is_known_module

MAX_OPTIONAL = 12

# A file may also import these plainly, and then cannot be used without them.
_TRIED = frozenset({"numpy", "typing_extensions"})
# Of the standard library, what every supported Python has on every system, next to the modules of `names.py`; ctypes is needed by torch.
_PYTHONS = frozenset(
    """
    array ast asyncio atexit base64 binascii bisect builtins calendar cmath codecs concurrent concurrent.futures configparser contextvars
    copyreg csv ctypes decimal difflib dis email errno faulthandler fileinput fnmatch fractions gc getopt getpass gettext gzip hashlib
    heapq hmac html http http.client importlib importlib.abc importlib.machinery importlib.metadata importlib.resources importlib.util io
    ipaddress keyword linecache locale logging.config logging.handlers marshal math mimetypes multiprocessing opcode optparse os.path
    pdb pickle pkgutil profile pstats queue reprlib runpy sched secrets selectors shlex signal site socket statistics stat stringprep
    struct subprocess symtable sysconfig tarfile threading token tokenize trace tracemalloc types unicodedata unittest.mock urllib
    urllib.error urllib.parse urllib.request uuid weakref xml zipfile zipimport
    """.split()
)


class _Module(ModuleType):
    """A module of which everything can be imported but what is `absent`; it has a version. Used can be what the `real` one has."""

    def __init__(self, name: str, absent: frozenset[str], real: ModuleType | None = None) -> None:
        super().__init__(name)
        self._absent, self._real = absent, real
        self.__path__: list[str] = [*getattr(real, "__path__", ())]

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full in self._absent:
            raise AttributeError(name)
        if name == "__version__":
            # The screen lets no file read it, for a trace could not be made with every version.
            return "0"
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real, name) if hasattr(self._real, name) else _Module(full, self._absent)


@dataclass(frozen=True)
class OptionalImports:
    """What a file imports and not everybody has: modules, with those that they are parts of, and dotted names from them.

    `tried` are names from modules that everybody has, perhaps without them; the packages of these are among the modules as well.
    """

    modules: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    tried: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Modules and names."""
        return self.modules | self.names | self.tried

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
    body = [statement for statement in tree.body if not is_main_guard(statement)]
    tried = _TRIED & (_imported(*(name for statement in body for name in _tried(statement))) - _imported(*_needed(body)))
    modules: set[str] = set()
    names: set[str] = set()
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if not _is_everywhere(node.module, tried))
    parts = (name.split(".") for name in modules if not _is_everywhere(name, tried))
    within = {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}
    perhaps = set(_from_python(part for statement in body for part in _tried(statement))) - set(_from_python(_needed(body)))
    packages = {name.partition(".")[0] for name in perhaps}
    missing = {name for name in within if not _is_everywhere(name, tried)}
    return OptionalImports(frozenset(missing | packages), frozenset(names), frozenset(perhaps))


def _from_python(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that are imported from modules that every Python has, but for those that every one has there."""
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and _is_everywhere(node.module, _TRIED):
            known = MATH if node.module == "math" else STANDARD_WORDS.get(node.module, "").split()
            full = (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in known)
            yield from (name for name in full if name.partition(".")[0] in sys.stdlib_module_names and not _is_everywhere(name, _TRIED))


def _tried(statement: ast.stmt) -> Iterator[ast.stmt]:
    """What stands in a `try` that goes on without it."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Try, ast.TryStar)) and _goes_on(node):
            yield from node.body


def _needed(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """What the file cannot be imported without: plain imports, and those in a `try` that only words the error."""
    for statement in body:
        if isinstance(statement, (ast.Try, ast.TryStar)) and not _goes_on(statement):
            yield from _needed(statement.body)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement


def _goes_on(node: ast.Try | ast.TryStar) -> bool:
    return any(not isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)


def _imported(*statements: ast.stmt) -> set[str]:
    """The packages of every import in these statements."""
    found: set[str] = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _is_everywhere(name: str, tried: Set[str]) -> bool:
    return name.partition(".")[0] not in tried and (is_known_module(name) or name in _PYTHONS)


@contextmanager
def pretended_modules(optional: OptionalImports, present: frozenset[str]) -> Iterator[None]:
    """While the context lasts what is present can be imported, and the rest cannot."""
    missing = object()
    replaced = {name for name in optional.modules if not _is_everywhere(name, _TRIED)}
    saved = {name: sys.modules.get(name, missing) for name in replaced}
    usual = builtins.__import__

    def importing(name: str, *given: Any, **named: Any) -> ModuleType:
        module = usual(name, *given, **named)
        # Others that import the module find it as it is: torch needs it whole.
        asked = given[2] if len(given) > 2 else named.get("fromlist")
        return _Module(name, optional.all - present, module) if any(f"{name}.{one}" in optional.tried for one in asked or ()) else module

    for name in replaced:
        # What is not of `_TRIED` has no words that `run` may use.
        found = saved[name] if name.partition(".")[0] in _TRIED else None
        stub = _Module(name, optional.all - present, found if isinstance(found, ModuleType) else None)
        sys.modules[name] = stub if name in present else None  # type: ignore[assignment]
    if optional.tried:
        builtins.__import__ = importing
    try:
        yield
    finally:
        builtins.__import__ = usual
        for name, module in saved.items():
            if module is missing:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module  # type: ignore[assignment]
