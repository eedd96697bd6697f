"""What a function changes of the containers that the file keeps at its top level, under names of its own.

A call that changes `BOX` is refused where it is called so; here it is followed to what a function binds to it or to a part of it, and to
parameters that a function of the file fills. The text says so of names that are bound somewhere in the function, in whatever order. What
a call keeps is looked at while the file is traced too, but only a shape that is traced shows it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Mapping

from referee.reading.host_attributes import NAMED_TUPLES
from referee.reading.host_code import OR_CACHED
from referee.reading.host_vocabulary import MUTATORS

# What a container gives of itself when it is asked. A named tuple gives what is its own, though in a new dict or tuple.
_GIVES = frozenset({"get", "items", "values"}) | NAMED_TUPLES
REASON = "is changed by a call; keep nothing between calls" + OR_CACHED


class Aliases:
    """The `kept` names of the top level, and which functions of the file change what they are given: by name, the parameters' places."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], kept: frozenset[str], variables: Collection[int]) -> None:
        self._kept = kept
        self._variables = variables
        self._fills: dict[str, frozenset[int]] = {}
        grown = True
        while grown:
            found = {name: self._filled(function) for name, function in functions.items()}
            grown = found != self._fills
            self._fills = found

    def changed(self, function: ast.FunctionDef) -> tuple[str, ast.AST] | None:
        """A name of the top level that the function changes under another one or by a call, and where; None where there is none."""
        given = {name: root for name, value in _defaulted(function) if (root := self._root(value, {})) is not None}
        return next(self._changed(function, given), None)

    def _filled(self, function: ast.FunctionDef) -> frozenset[int]:
        parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        changed = {root for root, _ in self._changed(function, {name: name for name in parameters})}
        return frozenset(place for place, name in enumerate(parameters) if name in changed)

    def _changed(self, function: ast.FunctionDef, given: dict[str, str]) -> Iterator[tuple[str, ast.AST]]:
        names = self._held(function, given)
        copied = dict(reversed([*self._copied(function, names)]))
        for node in ast.walk(function):
            for container in (*_changes(node), *self._handed(node)):
                name = _name(container)
                if name is None or getattr(node, "lineno", 0) > copied.get(name.id, math.inf):
                    continue
                if root := names.get(name.id) or self._root(name, {}):
                    yield root, node

    def _copied(self, function: ast.FunctionDef, names: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """Names that mean something new from a line on, as after `sizes = list(sizes)`, and that line."""
        last = {name: value.lineno for name, value in _bindings(function) if self._root(value, names) is not None}
        for statement in function.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value, lineno=line) if self._root(value, names) is None:
                    if last.get(name, 0) < line:
                        yield name, line

    def _handed(self, node: ast.AST) -> Iterator[ast.expr]:
        """What is given to a function of the file that changes it."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=given, keywords=keywords) if self._fills.get(name):
                yield from (value for place, value in enumerate(given) if place in self._fills[name])
                yield from (keyword.value for keyword in keywords)

    def _held(self, function: ast.FunctionDef, names: dict[str, str]) -> dict[str, str]:
        """`names`, and those that the function binds to the same or a part of it: each with what it is a name for."""
        names = dict(names)
        bound = list(_bindings(function))
        grown = True
        while grown:
            grown = False
            for name, value in bound:
                root = None if name in names else self._root(value, names)
                if root is not None:
                    names[name], grown = root, True
        return names

    def _root(self, value: ast.expr, names: Mapping[str, str]) -> str | None:
        """What a value is, or is a part of: of `names`, or a kept name of the top level."""
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                return self._root(body, names) or self._root(orelse, names)
            case ast.BoolOp(values=values):
                return next((root for one in values if (root := self._root(one, names))), None)
            case ast.NamedExpr(value=inner):
                return self._root(inner, names)
        name = _name(value)
        if name is None:
            return None
        if id(name) in self._variables:
            return names.get(name.id)
        return name.id if name.id in self._kept else None


def _name(value: ast.expr) -> ast.Name | None:
    """`BOX` of `BOX[0].rows` and `BOX.get(1)`."""
    while True:
        match value:
            case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=attribute)) if attribute in _GIVES:
                value = inner
            case ast.Name():
                return value
            case _:
                return None


def _changes(node: ast.AST) -> Iterator[ast.expr]:
    """The container that is changed, if any: `box` of `box[0] = 1` and `box.append`."""
    match node:
        case ast.Subscript(value=container, ctx=ast.Store() | ast.Del()):
            yield container
        case ast.Attribute(value=container, attr=attribute, ctx=ast.Load()) if attribute in MUTATORS:
            yield container
        case ast.AugAssign(target=ast.Name() as name, op=ast.Add() | ast.BitOr(), value=ast.List() | ast.Dict() | ast.Set()):
            yield name


def _bindings(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Names that are bound in a function, and to what, item by item where both sides are written so."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from _pairs(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from _pairs(target, value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(targets) else [value] * len(targets)
            for one, other in zip(targets, values, strict=True):
                yield from _pairs(one, other)


def _defaulted(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    places = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    yield from zip(reversed(places), reversed(function.args.defaults), strict=False)
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is not None:
            yield argument.arg, default
