"""What a candidate's file keeps between calls of `run`: read before the first call and compared after every other one.

A counter, a cache or a half-used iterator makes a later call differ from those that were traced, however many were traced. The
walk covers what hangs on the module's names: containers, functions' defaults, attributes and closures, objects of the file and of
the standard library, Triton's kernels and configurations. A cached function may remember more with every call, but only what
cannot change. Limits: torch's objects, other than modules, count by identity only. Runs in the trace worker.
"""

from __future__ import annotations

import functools
import gc
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import torch

MOST_OBJECTS = 50_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis))
_TRITON = frozenset({"JITFunction", "Autotuner", "Heuristics", "Config", "constexpr"})


# What Python itself keeps in a module: the second name once the module has warned, for which warnings were given.
_PYTHONS = frozenset({"__builtins__", "__warningregistry__"})
_CACHED = type(functools.lru_cache(lambda: None))


class KeptObject(ValueError):
    """A name of the module holds what can change without showing: an iterator, or a cached function's list. Says which."""


def kept(module: Mapping[str, Any], own: str) -> dict[str, tuple[object, ...]]:
    """For each name of the module a value that differs when anything below the name does. `own` is the module's name.

    Raises KeptObject.
    """
    return {name: tuple(_Walk(own).below(value)) for name, value in module.items() if name not in _PYTHONS}


def contents(value: object, own: str) -> tuple[object, ...]:
    """The same for one value. Raises KeptObject."""
    return tuple(_Walk(own).below(value))


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
                raise KeptObject(
                    "an iterator or generator is kept at the top level, and every use of it changes the next; make it in `run`"
                )
            if isinstance(value, _CACHED):
                _check_cached(value)
                continue
            inside = self._inside(value)
            yield len(inside)
            pending.extend(reversed(inside))

    def _inside(self, value: object) -> list[object]:
        found: list[object] = []
        if isinstance(value, (dict, MappingProxyType)):
            found += [part for pair in value.items() for part in pair]
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            found += value
        elif isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            return [value.__defaults__, value.__kwdefaults__, value.__dict__, *cells]
        elif isinstance(value, (ModuleType, BuiltinFunctionType)):
            return []
        elif isinstance(value, type):
            return list(vars(value).values()) if value.__module__ == self._own else []
        elif isinstance(value, functools.partial):
            found += [value.func, value.args, value.keywords]
        elif isinstance(value, logging.Logger):
            return [value.handlers, value.filters, value.level, value.disabled, value.propagate]
        return found + self._attributes(value)

    def _attributes(self, value: object) -> list[object]:
        library = type(value).__module__.partition(".")[0]
        if library in ("torch", "triton", "numpy") and type(value).__name__ not in _TRITON and not isinstance(value, torch.nn.Module):
            return []
        own = [part for name, part in getattr(value, "__dict__", {}).items() if name != "__globals__"]
        slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())] if library == self._own else []
        return own + [getattr(value, name, None) for name in slots if name not in ("__dict__", "__weakref__")]


def _check_cached(function: object) -> None:
    """Raise KeptObject when a cached function remembers something that can change."""
    # An unbounded cache is a dict of results; a bounded one refers to its keys and results itself.
    parts = [part for part in gc.get_referents(function) if part is not vars(function)]
    remembered = [value for part in parts for value in (part.values() if type(part) is dict else [part])]
    while remembered:
        value = remembered.pop()
        if isinstance(value, (FunctionType, type)):
            continue
        if isinstance(value, (tuple, frozenset)):
            remembered += value
        elif isinstance(value, (list, dict, set, deque)) or hasattr(type(value), "__next__"):
            kind = type(value).__name__
            raise KeptObject(f"a cached function keeps a {kind}, which can change between calls; let it return numbers or a tuple")


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
