"""What a candidate's file keeps between calls of `run`: read before the first call and compared after every other one.

A counter, a cache or a half-used iterator makes a later call differ from those that were traced, however many were traced. The
walk covers what hangs on the module's names: containers, functions' defaults, attributes and closures, objects of the file and of
the standard library, arrays and generators of numbers, Triton's kernels and configurations. A cached function may remember more
with every call, but only what cannot change. What is written in C and is of no known kind is refused. Limits: the objects of torch's,
Triton's and numpy's own classes, other than modules, arrays and tensors, count by identity only. Runs in the trace worker.
"""

from __future__ import annotations

import _random
import abc
import array
import contextvars
import ctypes
import decimal
import functools
import gc
import hashlib
import logging
import operator
import sys
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch

MOST_OBJECTS = 50_000
MOST_BYTES = 1 << 20
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis))
# The kinds that most objects are of, which need no search among the plain ones.
_PLAIN_KINDS, _USUAL = frozenset(_PLAIN), frozenset({FunctionType, ModuleType, CodeType, tuple, dict, list, type})
_TRITON = frozenset({"JITFunction", "Autotuner", "Heuristics", "Config", "constexpr"})
# What Python makes of other objects, and keeps them in without a dict: all that it refers to is looked at.
_HOLDING: tuple[type, ...] = (
    *(MethodType, BuiltinFunctionType, MethodWrapperType, CellType, GenericAlias, MappingProxyType, functools.partial),
    *(staticmethod, classmethod, property, super, slice, operator.itemgetter, operator.attrgetter, operator.methodcaller),
    *(type(made(base())) for base in (dict, OrderedDict) for made in (base.keys, base.values, base.items)),
)
# What an abstract class was asked about grows with the questions, and no answer depends on it.
_ABSTRACT = type(vars(abc.ABC)["_abc_impl"])

# What Python itself keeps in a module: the second name once the module has warned, for which warnings were given.
_PYTHONS = frozenset({"__builtins__", "__warningregistry__"})
_cached = functools.lru_cache(lambda: None)
_cached()
_CACHED = type(_cached)
# What the dict of keys of a bounded cache holds.
_LINK = next(type(value) for part in gc.get_referents(_cached) if type(part) is dict for value in part.values())
# Asked of a class, these answer what Python knows; a name that the class body binds, or its metaclass, does not come in between.
_NAMES, _MRO, _MODULE, _QUALNAME = (type.__dict__[name].__get__ for name in ("__dict__", "__mro__", "__module__", "__qualname__"))
_DICT_OFFSET = type.__dict__["__dictoffset__"].__get__
_HEAP_TYPE = 1 << 9
_dict_of = ctypes.pythonapi.PyObject_GenericGetDict
_dict_of.argtypes, _dict_of.restype = [ctypes.py_object], ctypes.py_object


# Where the classes come from that are written in C and whose objects do not change, or only as what is read of them does.
_UNCHANGING = frozenset(
    "builtins types typing re datetime decimal collections _collections _thread _contextvars contextvars weakref numpy torch triton".split()
)
_REFUSED: dict[type, str] = {
    torch.Tensor: "a tensor is kept at the top level; make it in `run`",
    torch.Generator: "a torch.Generator is kept at the top level, and every use of it changes the next; make it in `run`",
}


class KeptObject(ValueError):
    """A name of the module holds what can change without showing: an iterator, a cached function's list, too much. Says which."""


def kept(module: Mapping[str, Any], own: str) -> dict[str, tuple[object, ...]]:
    """For each name of the module a value that differs when anything below the name does. `own` is the module's name.

    Raises KeptObject.
    """
    return {name: tuple(_Walk(own).below(value)) for name, value in module.items() if name not in _PYTHONS}


def contents(value: object, own: str, *, tensors: bool = True) -> tuple[object, ...]:
    """The same for one value, which may hold `tensors`, each of which counts by identity. Raises KeptObject."""
    return tuple(_Walk(own, tensors=tensors).below(value))


def changed(before: Mapping[str, tuple[object, ...]], after: Mapping[str, tuple[object, ...]]) -> str | None:
    """The first name that is new, gone or different; None when all is as it was."""
    for name in (*before, *after):
        if before.get(name) != after.get(name):
            return name
    return None


class _Walk:
    def __init__(self, own: str, *, tensors: bool = False) -> None:
        self._own, self._tensors = own, tensors
        # Kept alive, so that no identity is used twice.
        self._seen: dict[int, object] = {}

    def below(self, root: object) -> Iterator[object]:
        """Types, sizes and plain values of everything reachable, in a fixed order."""
        pending = [root]
        while pending:
            if len(self._seen) >= MOST_OBJECTS:
                raise KeptObject(f"more than {MOST_OBJECTS} objects are kept at the top level under one name; keep fewer")
            value = pending.pop()
            kind = type(value)
            # `issubclass` of the true type throughout: `isinstance` also asks the value, and a class may call itself what it likes.
            if kind in _PLAIN_KINDS:
                # As text, because NaN differs from itself and True equals 1.
                yield kind, kind.__repr__(value)
                continue
            plain = None if kind in _USUAL else next((base for base in _PLAIN if issubclass(kind, base)), None)
            if plain is not None:
                yield kind, _text(plain, value)
            yield kind, id(value)
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if hasattr(kind, "__next__"):
                raise KeptObject(
                    "an iterator or generator is kept at the top level, and every use of it changes the next; make it in `run`"
                )
            inside = self._inside(value, kind)
            yield len(inside)
            pending.extend(reversed(inside))

    def _inside(self, value: Any, kind: type) -> list[object]:
        if kind is _ABSTRACT or (issubclass(kind, ModuleType) and not self._is_own(kind)):
            return []
        if self._tensors and issubclass(kind, torch.Tensor):
            return []
        if kind is FunctionType:
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            return [value.__code__, value.__defaults__, value.__kwdefaults__, value.__dict__, *cells]
        if issubclass(kind, type):
            return [*_NAMES(value).values(), *_MRO(value), kind] if self._is_own(value) else []
        if kind is _CACHED:
            return _around_cached(value)
        if issubclass(kind, logging.Logger) and not self._is_own(kind):
            return [value.handlers, value.filters, value.level, value.disabled, value.propagate]
        # First, because to ask for a dict may make it, which is referred to then.
        attributes = self._attributes(value, kind)
        # By the methods of the base, because those of a class of the file may show less.
        found = _read(value, kind)
        if issubclass(kind, dict):
            items = OrderedDict.items(value) if issubclass(kind, OrderedDict) else dict.items(value)
            found += [part for pair in items for part in pair]
            if issubclass(kind, defaultdict):
                found.append(value.default_factory)
        elif base := next((base for base in (list, tuple, set, frozenset, deque) if issubclass(kind, base)), None):
            found += base.__iter__(value)
        elif kind in _HOLDING:
            found += gc.get_referents(value)
        elif not found and not attributes and self._is_closed(kind):
            raise KeptObject(f"a {kind.__name__} is kept at the top level, and what it holds cannot be read; make it in `run`")
        return found + attributes

    def _attributes(self, value: Any, kind: type) -> list[object]:
        if not kind.__flags__ & _HEAP_TYPE and not _DICT_OFFSET(kind):
            return []
        own = self._is_own(kind)
        library = str(_MODULE(kind)).partition(".")[0]
        walked = own or library not in ("torch", "triton", "numpy", "referee") or kind.__name__ in _TRITON
        if not walked and not issubclass(kind, torch.nn.Module):
            return []
        found = [part for name, part in _dict(value).items() if name != "__globals__"]
        members = [member for base in _MRO(kind) if "__slots__" in _NAMES(base) for member in _NAMES(base).values()]
        found += [_member(member, value) for member in members if type(member) is MemberDescriptorType]
        # What its class keeps is in reach of it; and slots whose names the class no longer has are referred to.
        return [*found, *gc.get_referents(value), kind] if own else found

    def _is_closed(self, kind: type) -> bool:
        """True for a class that no `class` statement made and of which it is not known that its objects stay as they are."""
        if _DICT_OFFSET(kind) or any("__slots__" in _NAMES(base) for base in _MRO(kind)):
            return False
        return str(_MODULE(kind)).partition(".")[0] not in _UNCHANGING and not self._is_own(kind)

    def _is_own(self, kind: type) -> bool:
        """True for a class of the file, whatever it says of itself: a library's class is found where it says that it is."""
        module = _MODULE(kind)
        if module == self._own:
            return True
        if not kind.__flags__ & _HEAP_TYPE:
            return False
        first, *rest = _QUALNAME(kind).split(".")
        found = getattr(sys.modules.get(str(module)), "__dict__", {}).get(first)
        for name in rest:
            found = _NAMES(found).get(name) if isinstance(found, type) else None
        return found is not kind


def _read(value: Any, kind: type) -> list[object]:
    """What an object says of itself that is not among its attributes. Raises KeptObject."""
    if kind in _USUAL:
        return []
    for base in _MRO(kind):
        if base in _REFUSED:
            raise KeptObject(_REFUSED[base])
        if base in _READ:
            return _READ[base](value)
    return []


def _digest(size: int, data: Callable[[], bytes]) -> str:
    if size > MOST_BYTES:
        raise KeptObject(f"more than {MOST_BYTES} bytes are kept at the top level in one array; keep fewer")
    return hashlib.sha256(data()).hexdigest()


def _of_array(value: Any) -> list[object]:
    about = [str(part) for part in (value.dtype, value.shape, value.strides, value.flags.writeable)]
    # An array of objects holds where they are.
    return [*about, _digest(value.nbytes, value.tobytes), *(value.ravel().tolist() if value.dtype.hasobject else ())]


def _of_memory(value: memoryview) -> list[object]:
    try:
        return [str(value.shape), _digest(value.nbytes, value.tobytes)]
    except ValueError:
        return ["released"]


def _of_variable(value: contextvars.ContextVar[Any]) -> list[object]:
    try:
        return [value.get()]
    except LookupError:
        return []


# By the methods of the base as well. Nothing that is made here may be compared by where it is.
_READ: dict[type, Callable[[Any], list[object]]] = {
    np.ndarray: _of_array,
    bytearray: lambda value: [_digest(bytearray.__len__(value), lambda: bytes(bytearray.__getitem__(value, slice(None))))],
    array.array: lambda value: [_digest(len(memoryview(value).cast("B")), lambda: array.array.tobytes(value))],
    memoryview: _of_memory,
    _random.Random: lambda value: [hashlib.sha256(repr(_random.Random.getstate(value)).encode()).hexdigest()],
    decimal.Context: lambda value: [decimal.Context.__repr__(value)],
    contextvars.ContextVar: _of_variable,
    contextvars.Context: lambda value: [part for pair in value.items() for part in pair],
    weakref.ReferenceType: lambda value: [weakref.ReferenceType.__call__(value)],
    threading.local: lambda value: [part for pair in vars(value).items() for part in pair],
    BaseException: lambda value: [*BaseException.__dict__["args"].__get__(value)],
    **{type(lock): lambda value: [repr(value)] for lock in (threading.Lock(), threading.RLock())},
}
_MUTABLE = (list, dict, set, deque, bytearray, array.array, memoryview, np.ndarray, _random.Random, decimal.Context, threading.local)


def _text(plain: Any, value: object) -> str:
    text: str = plain.__repr__(value)
    return text


def _dict(value: object) -> dict[str, object]:
    """The true `__dict__` of an object, where a class body may have bound that name."""
    try:
        found: dict[str, object] = _dict_of(value)
    except AttributeError:
        return {}
    return found


def _member(member: MemberDescriptorType, value: object) -> object:
    try:
        return member.__get__(value)
    except AttributeError:
        return None


def _around_cached(function: Any) -> list[object]:
    """What a cached function calls and carries. Raises KeptObject when it remembers something that can change."""
    _check_cached(function)
    # Not `__wrapped__`, which can be bound.
    return _cached_parts(function)[1]


def _cached_parts(function: object) -> tuple[list[Any], list[object]]:
    """What a cached function remembers, and all else that it refers to."""
    parts = gc.get_referents(function)
    # Python visits what a bounded one remembers first, then the dict of its keys, then the rest. An unbounded one has a dict of results.
    dicts = [number for number, part in enumerate(parts) if type(part) is dict and part is not vars(function)]
    place = next((number for number in reversed(dicts) if all(type(value) is _LINK for value in parts[number].values())), dicts[0])
    results = [value for value in parts[place].values() if type(value) is not _LINK]
    return [*parts[:place], *results], parts[place + 1 :]


def _check_cached(function: object) -> None:
    """Raise KeptObject when a cached function remembers something that can change."""
    remembered, _ = _cached_parts(function)
    while remembered:
        value = remembered.pop()
        if isinstance(value, (FunctionType, type)):
            continue
        if isinstance(value, (tuple, frozenset)):
            remembered += value
        elif isinstance(value, torch.Tensor):
            raise KeptObject("a cached function keeps a tensor, whose shape and type can change; give it shapes and dtypes, and numbers")
        elif isinstance(value, _MUTABLE) or hasattr(type(value), "__next__"):
            kind = type(value).__name__
            raise KeptObject(f"a cached function keeps a {kind}, which can change between calls; let it return numbers or a tuple")


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
