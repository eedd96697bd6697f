"""Whether Python objects are still what they were: modules, functions, classes and plain objects of one library, down to their code.

Limits: objects of other libraries and containers within containers count by identity only, and what is new in a module is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import CellType, FunctionType, ModuleType
from typing import Any

_MISSING = object()
# Filled in when a kernel is first looked at or compiled, and when a class is looked at or copied.
_LAZY = frozenset({"hash", "used_global_vals", "__annotations__", "__annotations_cache__", "__slotnames__"})


class Snapshot:
    """Objects by name, and all of the library below them."""

    def __init__(self, roots: Iterable[tuple[str, object]], library: str = "triton") -> None:
        pending = list(roots)
        self._library = library
        # Of other modules only that they are the same.
        self._modules = {id(value) for _, value in pending}
        self._seen: dict[int, object] = {}
        # What each object is made of. The parts are kept alive, so that no identity is used twice.
        self._parts: list[tuple[str, object, dict[str, object]]] = []
        while pending:
            name, value = pending.pop()
            if id(value) in self._seen or not self._is_ours(value):
                continue
            self._seen[id(value)] = value
            parts = dict(_parts(value))
            self._parts.append((name, value, parts))
            pending.extend((f"{name}.{part}", inner) for part, inner in parts.items())

    def renewed(self) -> Snapshot:
        """Of the same objects, as they are now. What they have come to hold meanwhile counts by identity only."""
        other = copy.copy(self)
        other._parts = [(name, value, dict(_parts(value))) for name, value, _ in self._parts]
        return other

    def changed(self) -> str | None:
        """The name of the first object that has lost or changed a part, or, unless it is a module, has a new one."""
        for name, value, before in self._parts:
            now = dict(_parts(value))
            for part, inner in before.items():
                if now.get(part, _MISSING) is not inner:
                    return f"{name}.{part}"
            if len(now) != len(before) and not isinstance(value, ModuleType):
                if not all(part in before or _is_cached(value, part) for part in now):
                    return name
        return None

    def _is_ours(self, value: object) -> bool:
        if isinstance(value, ModuleType):
            return id(value) in self._modules
        if isinstance(value, (CellType, property, staticmethod, classmethod)):
            return True
        kind = value if isinstance(value, (type, FunctionType)) else type(value)
        return str(getattr(kind, "__module__", "")).partition(".")[0] == self._library


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, FunctionType):
        yield "__code__", value.__code__
        yield "__defaults__", value.__defaults__
        yield "__kwdefaults__", value.__kwdefaults__
        yield from ((f"__closure__.{index}", cell) for index, cell in enumerate(value.__closure__ or ()))
    elif isinstance(value, CellType):
        try:
            yield "cell_contents", value.cell_contents
        except ValueError:
            return
    elif isinstance(value, property):
        yield from (("fget", value.fget), ("fset", value.fset))
    elif isinstance(value, (staticmethod, classmethod)):
        yield "__func__", value.__func__
    own = getattr(value, "__dict__", {})
    yield from ((name, part) for name, part in own.items() if name not in _LAZY)


def _is_cached(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)
