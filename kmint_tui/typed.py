"""Checks JSON values against Python type annotations.

It supports `int`, `float`, `str`, `bool`, None, `Any`, unions, `Literal`, lists, tuples of one
type, and mappings of texts. It also supports `TypedDict` with `NotRequired`, and dataclasses, which
it builds. A dataclass drops keys that its annotations do not name; a `TypedDict` keeps them.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, NotRequired, TypeVar, Union, get_args, get_origin, is_typeddict

Kind = TypeVar("Kind")

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    dict: "an object",
    list: "a list",
}


class Mistyped(ValueError):
    """A value is not of its type; the message is one line that names the place."""


def made(kind: type[Kind], document: Any, where: str = "it") -> Kind:
    """A dataclass from a JSON object, with the type of every field checked.

    Fields with a default may be missing. Raises Mistyped.
    """
    found: Kind = typed(document, kind, where)
    return found


def typed(value: Any, kind: Any, where: str = "it") -> Any:
    """`value` as an instance of the annotation `kind`.

    Raises Mistyped, which names the place within `where`.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _float(value, where)
    if kind in (int, str, bool):
        return _plain(value, kind, where)
    if kind in (None, type(None)) and value is None:
        return None
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, where)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
        raise Mistyped(f"{where} must be one of {', '.join(map(str, arguments))}")
    if origin in (list, Sequence, tuple) and isinstance(value, list):
        items = [typed(item, arguments[0], f"{where}[{place}]") for place, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {
            name: typed(item, arguments[1], f"{where}.{name:.40}") for name, item in value.items()
        }
    if is_typeddict(kind) and isinstance(value, dict):
        return _checked_dict(value, kind, where)
    if is_dataclass(kind) and isinstance(value, dict):
        return _made(value, kind, where)
    raise Mistyped(f"{where} must be {_kind_words(kind)}, not {_words(type(value))}")


def _float(value: float, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Mistyped(f"{where} is too large a number") from None


def _plain(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Mistyped(f"{where} must be {_words(kind)}, not {_words(type(value))}")
    return value


def _one_of(value: Any, kinds: Sequence[Any], where: str) -> Any:
    *first, last = [kind for kind in kinds if not (kind is type(None) and value is not None)]
    for kind in first:
        try:
            return typed(value, kind, where)
        except Mistyped:
            continue
    # The last error says most: of `X | None` it is about X.
    return typed(value, last, where)


def _checked_dict(value: dict[str, Any], kind: Any, where: str) -> dict[str, Any]:
    found = dict(value)
    for name, (item, required) in _hints(kind).items():
        if name in value:
            found[name] = typed(value[name], item, f"{where}.{name}")
        elif required:
            raise Mistyped(f"{where} lacks {name!r}")
    return found


def _made(value: dict[str, Any], kind: Any, where: str) -> Any:
    hints, given = _hints(kind), {}
    for field in fields(kind):
        if field.name in value:
            given[field.name] = typed(
                value[field.name], hints[field.name][0], f"{where}.{field.name}"
            )
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Mistyped(f"{where} lacks {field.name!r}")
    return kind(**given)


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The annotation of each key, and whether the key is required."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: (get_args(hint)[0], False) if get_origin(hint) is NotRequired else (hint, True)
        for name, hint in hints.items()
    }


def _kind_words(kind: Any) -> str:
    if get_origin(kind) in (list, Sequence, tuple):
        return "a list"
    return _words(kind) if kind in _WORDS else "an object"


def _words(kind: Any) -> str:
    return _WORDS.get(kind, str(kind))
