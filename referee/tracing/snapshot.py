"""Whether Python objects are still what they were: modules, functions, classes and plain objects of one library, down to their code.

Limits: objects of other libraries and containers within containers count by identity only, and what is new in a module is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import cache, cached_property
from operator import is_
from types import CellType, FunctionType, ModuleType
from typing import Any

# Names, and what each of them stands for.
_Parts = tuple[tuple[str, ...], tuple[object, ...]]

_MISSING = object()
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
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
        self._parts: list[tuple[str, object, _Parts]] = []
        while pending:
            name, value = pending.pop()
            if id(value) in self._seen or not self._is_ours(value):
                continue
            self._seen[id(value)] = value
            parts = _parts(value)
            self._parts.append((name, value, parts))
            pending.extend((f"{name}.{part}", inner) for part, inner in zip(*parts, strict=True))

    def renewed(self) -> Snapshot:
        """Of the same objects, as they are now. What they have come to hold meanwhile counts by identity only."""
        other = copy.copy(self)
        other._parts = [(name, value, _parts(value)) for name, value, _ in self._parts]
        return other

    def changed(self) -> str | None:
        """The name of the first object that has lost or changed a part, or, unless it is a module, has a new one."""
        for name, value, (names, values) in self._parts:
            now_names, now_values = _parts(value)
            # Nearly always all is as it was, which is seen in less time by identity than by name.
            if len(values) == len(now_values) and all(map(is_, values, now_values)) and all(map(is_, names, now_names)):
                continue
            before, now = dict(zip(names, values, strict=True)), dict(zip(now_names, now_values, strict=True))
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


def _parts(value: Any) -> _Parts:
    """Names and what they stand for, in the same order each time."""
    names: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        names, values = _OF_FUNCTIONS + _cell_names(len(cells)), (value.__code__, value.__defaults__, value.__kwdefaults__, *cells)
    elif isinstance(value, CellType):
        try:
            return ("cell_contents",), (value.cell_contents,)
        except ValueError:
            return (), ()
    elif isinstance(value, property):
        names, values = ("fget", "fset"), (value.fget, value.fset)
    elif isinstance(value, (staticmethod, classmethod)):
        names, values = ("__func__",), (value.__func__,)
    own = getattr(value, "__dict__", {})
    if not _LAZY.isdisjoint(own):
        own = {name: part for name, part in own.items() if name not in _LAZY}
    return names + tuple(own), values + tuple(own.values())


@cache
def _cell_names(count: int) -> tuple[str, ...]:
    return tuple(f"__closure__.{index}" for index in range(count))


def _is_cached(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)
