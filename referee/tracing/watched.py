"""What functions of a candidate's file could change when they are called: themselves, and the module's values that they name.

Looked at before and after calls that Triton makes another number of times than the tracer. Limits: what a function reaches by other ways
than the names in its text, such as an argument's attributes, is not watched here; the screen says which arguments there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from referee.tracing.kept_state import contents


class Watched:
    """Functions, and all that they name, as they are now. `own` is the name of the candidate's module."""

    def __init__(self, functions: tuple[object, ...], own: str) -> None:
        """None among the functions is for one that there is not. Raises KeptObject."""
        self._functions = tuple(function for function in functions if function is not None)
        self._own = own
        self._names = tuple((names, name) for function in self._functions for names, name in _named(function))
        self._before = self._now()

    def changed(self) -> bool:
        """True when something is no longer what it was. Raises KeptObject."""
        return self._now() != self._before

    def _now(self) -> tuple[object, ...]:
        selves = (getattr(function, "__self__", None) for function in self._functions)
        values = (names.get(name) for names, name in self._names)
        return tuple(contents(value, self._own) for value in (*self._functions, *selves, *values))


def _named(root: object) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Where the functions below one find their names, and each name."""
    pending, seen = [root], set[int]()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            pending.append(value.__func__)
        elif isinstance(value, FunctionType):
            for name in _names(value.__code__):
                if name in value.__globals__:
                    yield value.__globals__, name
                    pending.append(value.__globals__[name])
            pending += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        elif isinstance(called := vars(type(value)).get("__call__"), FunctionType):
            pending.append(called)
        elif isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):
            pending.append(wrapped)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
