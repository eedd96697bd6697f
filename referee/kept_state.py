"""What a candidate's file keeps between calls of `run`: read before the first call and compared after every other one.

A counter, a cache or a half-used iterator makes a later call differ from those that were traced, however many were traced. The
walk covers what hangs on the module's names: containers, functions' defaults, attributes and closures, the file's own
objects, and Triton's kernels and configurations. Limits: other libraries' objects count by identity only. Runs in the trace worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

MOST_OBJECTS = 50_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis))
_TRITON = frozenset({"JITFunction", "Autotuner", "Heuristics", "Config", "constexpr"})


class KeptIterator(ValueError):
    """A name of the module holds an iterator, which every use changes and no one can look into."""


def kept(module: Mapping[str, Any], own: str) -> dict[str, tuple[object, ...]]:
    """For each name of the module a value that differs when anything below the name does. `own` is the module's name.

    Raises KeptIterator.
    """
    return {name: tuple(_Walk(own).below(value)) for name, value in module.items() if name != "__builtins__"}


def changed(before: Mapping[str, tuple[object, ...]], after: Mapping[str, tuple[object, ...]]) -> str | None:
    """The first name that is new, gone or different; None when all is as it was."""
    for name in (*before, *after):
        if before.get(name) != after.get(name):
            return name
    return None


class _Walk:
    def __init__(self, own: str) -> None:
        self._own = own
        # Kept alive, so that no identity is used twice.
        self._seen: dict[int, object] = {}

    def below(self, root: object) -> Iterator[object]:
        """Types, sizes and plain values of everything reachable, in a fixed order."""
        pending = [root]
        while pending and len(self._seen) < MOST_OBJECTS:
            value = pending.pop()
            if isinstance(value, _PLAIN):
                # As text, because NaN differs from itself and True equals 1.
                yield type(value), repr(value)
                continue
            yield type(value), id(value)
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if hasattr(type(value), "__next__"):
                raise KeptIterator
            inside = self._inside(value)
            yield len(inside)
            pending.extend(reversed(inside))

    def _inside(self, value: object) -> list[object]:
        if isinstance(value, (dict, MappingProxyType)):
            return [part for pair in value.items() for part in pair]
        if isinstance(value, (list, tuple, set, frozenset)):
            return list(value)
        if isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            return [value.__defaults__, value.__kwdefaults__, value.__dict__, *cells]
        if isinstance(value, (ModuleType, BuiltinFunctionType)):
            return []
        if isinstance(value, type):
            return list(vars(value).values()) if value.__module__ == self._own else []
        if type(value).__module__ == self._own or type(value).__name__ in _TRITON:
            return [part for name, part in getattr(value, "__dict__", {}).items() if name != "__globals__"]
        return []


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
