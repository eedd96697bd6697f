"""The state of a candidate's module, which no call of `run` may change.

A counter or a cache makes a later call differ from the traced calls, however many these are. The
walk reads the values below the module's names: containers, and the attributes, defaults and
closures of functions, classes and objects of the file. Every other object counts by identity.

Limits: iterators, cached functions and objects of libraries keep their state. Host code that uses
them is not vouched for. Runs in the trace worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

MOST_OBJECTS = 50_000
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis)})
_SEQUENCES = (list, tuple, set, frozenset, deque)
# Names that Python itself binds in a module. It binds the second one when the module gives a
# warning.
_PYTHONS = frozenset({"__builtins__", "__warningregistry__"})

State = dict[str, tuple[object, ...]]
"""For each name of a module, a tuple that differs when anything below the name does."""


def state_of(module: ModuleType) -> State:
    """The state of a module's names."""
    own = module.__name__
    return {
        name: tuple(_below(value, own))
        for name, value in vars(module).items()
        if name not in _PYTHONS
    }


def changed(before: State, after: State) -> str | None:
    """The first name that is new, gone or different; None when nothing has changed."""
    for name in (*before, *after):
        if before.get(name) != after.get(name):
            return name
    return None


def _below(root: object, own: str) -> Iterator[object]:
    """Types, sizes and plain values of everything reachable, in a fixed order."""
    # The dict keeps the objects alive, so that no identity is used twice.
    seen: dict[int, object] = {}
    pending = [root]
    while pending and len(seen) < MOST_OBJECTS:
        value = pending.pop()
        kind = type(value)
        if kind in _PLAIN:
            # The text counts, because NaN differs from itself and True equals 1.
            yield kind, repr(value)
            continue
        yield kind, id(value)
        if id(value) in seen:
            continue
        seen[id(value)] = value
        inside = _inside(value, own)
        yield len(inside)
        pending.extend(reversed(inside))


def _inside(value: Any, own: str) -> list[object]:
    kind = type(value)
    # Methods of the base class read the contents, because a class of the file may hide some.
    found: list[object] = []
    if issubclass(kind, dict):
        found += [part for pair in dict.items(value) for part in pair]
    elif base := next((base for base in _SEQUENCES if issubclass(kind, base)), None):
        found += base.__iter__(value)
    elif kind is FunctionType:
        found += [value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ())]
    elif kind is MethodType:
        found += [value.__self__, value.__func__]
    elif kind is CellType:
        found += _filled(value)
    cls = value if issubclass(kind, type) else kind
    if kind is FunctionType or cls.__module__ == own:
        found += [*vars(value).values()] if hasattr(value, "__dict__") else []
        found += [kind] if cls is kind else []
    return found


def _filled(cell: CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
