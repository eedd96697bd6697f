"""The host code that a verdict does not vouch for: code outside the allow-list that runs at import
or that `run` reaches.

A file's unused imports, tests, classes and decorated functions do not count, as long as nothing of
the file runs because of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from referee.reading.allowed_words import BUILTINS, ERRORS
from referee.reading.host_allowed import (
    ENTRY,
    Finding,
    calls_something,
    in_expression,
    in_function,
    is_literal,
    is_plain,
    needed,
)
from referee.reading.kernels import is_kernel
from referee.reading.module_scope import Scope, is_main_guard, read
from referee.reading.names import dotted
from referee.reading.source import parse

_OF_METHODS = frozenset({"staticmethod", "classmethod", "property"})
# Python calls these only for an object of the class. Only code that is checked could make one.
_OF_OBJECTS = frozenset(
    {"__init__", "__call__", "__repr__", "__str__", "__eq__", "__hash__", "__len__"}
)
_IN_CONFIGS = (
    ast.ListComp, ast.comprehension, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Call, ast.keyword,
    ast.Load, ast.Store, ast.BinOp, ast.operator, ast.Attribute, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop,
)  # fmt: skip
_MOST_NAMED = 3


def unvouched(source: str) -> tuple[Finding, ...]:
    """The findings of a file, in the order of the text. Raises SourceError or ImportRefused."""
    tree = parse(source)
    return tuple(sorted(_File(tree, read(tree)).findings(), key=lambda one: one.line or 0))


def reservation(findings: Iterable[Finding]) -> str:
    """The reservation in words, or "" where there is none."""
    places = list(dict.fromkeys(f"line {one.line}, {one.what}" for one in findings))
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return f"host code not vouched for: {'; '.join(places[:_MOST_NAMED])}{more}" if places else ""


class _File:
    def __init__(self, tree: ast.Module, scope: Scope) -> None:
        self._body = [statement for statement in tree.body if not is_main_guard(statement)]
        self._scope = scope
        self._reached = needed(scope)
        self._classes = {
            statement.name for statement in self._body if isinstance(statement, ast.ClassDef)
        }
        pending = [name for name in self._run_at_import() if name in scope.functions]
        while pending:
            name = pending.pop()
            if name not in self._reached:
                self._reached.add(name)
                mentioned = {
                    node.id
                    for node in ast.walk(scope.functions[name])
                    if isinstance(node, ast.Name)
                }
                pending += sorted(mentioned & scope.functions.keys())

    def findings(self) -> Iterator[Finding]:
        taken = (self._scope.aliases.keys() | self._scope.assigned.keys() | self._classes) & (
            BUILTINS | ERRORS
        )
        for statement in self._body:
            if isinstance(statement, ast.FunctionDef):
                yield from self._function(statement)
            elif isinstance(statement, ast.ClassDef):
                yield from self._class(statement)
            elif not is_plain(statement, self._scope) and not self._is_configs(statement):
                yield Finding.at(
                    statement,
                    "at the top level only imports, constants and functions are vouched for",
                )
            elif taken and (bound := taken & _bound(statement)):
                yield Finding.at(
                    statement, f"`{min(bound)}` is the name of something else", min(bound)
                )

    def _run_at_import(self) -> Iterator[str]:
        """The names in decorators. A function of the file that decorates runs at import."""
        for statement in self._body:
            methods = statement.body if isinstance(statement, ast.ClassDef) else []
            for one in (statement, *methods):
                if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                    yield from (
                        node.id
                        for part in one.decorator_list
                        for node in ast.walk(part)
                        if isinstance(node, ast.Name)
                    )

    def _function(self, function: ast.FunctionDef) -> Iterator[Finding]:
        if is_kernel(function, self._scope):
            for decorator in function.decorator_list:
                yield from self._of_a_kernel(decorator)
        elif function.name in self._reached or function.name == ENTRY:
            yield from in_function(function, self._scope)
        else:
            yield from self._only_defined(function, frozenset())

    def _of_a_kernel(self, decorator: ast.expr) -> Iterator[Finding]:
        if not isinstance(decorator, ast.Call):
            return
        for given in (*decorator.args, *(keyword.value for keyword in decorator.keywords)):
            if not self._is_list_of_configs(given) and not is_literal(given, self._scope):
                yield from in_expression(given, self._scope)

    def _only_defined(self, function: ast.FunctionDef, usual: frozenset[str]) -> Iterator[Finding]:
        """Findings in an uncalled function's decorators, defaults and annotations."""
        for decorator in function.decorator_list:
            if not (
                isinstance(decorator, ast.Name) and decorator.id in usual
            ) and not self._is_harmless(decorator):
                yield Finding.at(
                    decorator, "this decorator runs at import", f"@{ast.unparse(decorator)}"
                )
        annotations = [
            part.annotation for part in ast.walk(function.args) if isinstance(part, ast.arg)
        ]
        for annotation in (*annotations, function.returns):
            if annotation is not None and calls_something(annotation):
                yield Finding.at(annotation, "annotations may call nothing")
        for default in (
            *function.args.defaults,
            *(one for one in function.args.kw_defaults if one is not None),
        ):
            if (
                not is_literal(default, self._scope)
                and dotted(default, self._scope.aliases) is None
            ):
                yield Finding.at(default, "defaults must be plain values")

    def _is_harmless(self, decorator: ast.expr) -> bool:
        """True for a word of a library, or of the file, called with plain values at most."""
        called, given = decorator, list[ast.expr]()
        if isinstance(decorator, ast.Call):
            called = decorator.func
            given = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        known = isinstance(root, ast.Name) and (
            root.id in self._scope.aliases or root.id in self._scope.functions
        )
        return known and all(
            is_literal(one, self._scope) or dotted(one, self._scope.aliases) for one in given
        )

    def _class(self, statement: ast.ClassDef) -> Iterator[Finding]:
        own = {
            id(base)
            for base in statement.bases
            if isinstance(base, ast.Name) and base.id in self._classes
        }
        known = all(
            id(base) in own or dotted(base, self._scope.aliases) for base in statement.bases
        )
        if (
            not known
            or statement.keywords
            or not all(map(self._is_harmless, statement.decorator_list))
        ):
            yield Finding.at(statement, "this class runs code at import", f"class {statement.name}")
        for part in statement.body:
            if isinstance(part, ast.FunctionDef):
                if part.name.startswith("__") and part.name not in _OF_OBJECTS:
                    yield Finding.at(part, "Python may call it at import", f"def {part.name}")
                yield from self._only_defined(part, _OF_METHODS)
            elif not (
                isinstance(part, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Pass))
                and self._holds_values(part)
                and not (isinstance(part, ast.AnnAssign) and calls_something(part.annotation))
            ):
                yield Finding.at(part, "a class may hold methods and plain values")

    def _holds_values(self, part: ast.stmt) -> bool:
        value = getattr(part, "value", None)
        return value is None or is_literal(value, self._scope)

    def _is_configs(self, statement: ast.stmt) -> bool:
        """True for `configs = [triton.Config(...), ...]`, from which kmint takes numbers."""
        return isinstance(statement, ast.Assign) and self._is_list_of_configs(statement.value)

    def _is_list_of_configs(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Name):
            return value.id in self._scope.assigned and self._is_list_of_configs(
                self._scope.assigned[value.id]
            )
        if not isinstance(value, (ast.List, ast.ListComp)):
            return False
        calls = [
            node for node in ast.walk(value) if isinstance(node, ast.Call) and not _is_range(node)
        ]
        known = all(dotted(call.func, self._scope.aliases) == "triton.Config" for call in calls)
        words = (node for node in ast.walk(value) if isinstance(node, ast.Attribute))
        return (
            bool(calls)
            and known
            and all(isinstance(node, _IN_CONFIGS) for node in ast.walk(value))
            and all(dotted(word, self._scope.aliases) == "triton.Config" for word in words)
        )


def _is_range(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "range"


def _bound(statement: ast.stmt) -> set[str]:
    names = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    imports = (
        node for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    return names | {
        alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names
    }
