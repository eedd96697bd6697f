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
        self._classes = {one.name for one in self._body if isinstance(one, ast.ClassDef)}
        pending = [name for name in self._run_at_import() if name in scope.functions]
        while pending:
            name = pending.pop()
            if name not in self._reached:
                self._reached.add(name)
                pending += sorted(_names(scope.functions[name]) & scope.functions.keys())

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
                reason = "at the top level only imports, constants and functions are vouched for"
                yield Finding.at(statement, reason)
            elif taken and (bound := taken & _bound(statement)):
                reason = f"`{min(bound)}` is the name of something else"
                yield Finding.at(statement, reason, min(bound))

    def _run_at_import(self) -> Iterator[str]:
        """The names in decorators. A function of the file that decorates runs at import."""
        for statement in self._body:
            methods = statement.body if isinstance(statement, ast.ClassDef) else []
            for one in (statement, *methods):
                if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                    for part in one.decorator_list:
                        yield from sorted(_names(part))

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
            of_python = isinstance(decorator, ast.Name) and decorator.id in usual
            if not of_python and not self._is_harmless(decorator):
                shown = f"@{ast.unparse(decorator)}"
                yield Finding.at(decorator, "this decorator runs at import", shown)
        parts = (part for part in ast.walk(function.args) if isinstance(part, ast.arg))
        for annotation in (*(part.annotation for part in parts), function.returns):
            if annotation is not None and calls_something(annotation):
                yield Finding.at(annotation, "annotations may call nothing")
        for default in filter(None, (*function.args.defaults, *function.args.kw_defaults)):
            if not self._is_value(default):
                yield Finding.at(default, "defaults must be plain values")

    def _is_value(self, node: ast.expr) -> bool:
        return is_literal(node, self._scope) or dotted(node, self._scope.aliases) is not None

    def _is_harmless(self, decorator: ast.expr) -> bool:
        """True for a word of a library, or of the file, called with plain values at most."""
        called, given = decorator, list[ast.expr]()
        if isinstance(decorator, ast.Call):
            called = decorator.func
            given = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        names = self._scope.aliases.keys() | self._scope.functions.keys()
        return isinstance(root, ast.Name) and root.id in names and all(map(self._is_value, given))

    def _class(self, statement: ast.ClassDef) -> Iterator[Finding]:
        known = all(
            (isinstance(base, ast.Name) and base.id in self._classes)
            or dotted(base, self._scope.aliases)
            for base in statement.bases
        )
        decorated = not all(map(self._is_harmless, statement.decorator_list))
        if not known or statement.keywords or decorated:
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
            assigned = self._scope.assigned.get(value.id)
            return assigned is not None and self._is_list_of_configs(assigned)
        nodes = list(ast.walk(value))
        calls = [one.func for one in nodes if isinstance(one, ast.Call) and not _is_range(one)]
        words = [one for one in nodes if isinstance(one, ast.Attribute)]
        known = all(
            dotted(word, self._scope.aliases) == "triton.Config" for word in (*calls, *words)
        )
        is_list = isinstance(value, (ast.List, ast.ListComp)) and bool(calls)
        return is_list and known and all(isinstance(node, _IN_CONFIGS) for node in nodes)


def _is_range(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "range"


def _bound(statement: ast.stmt) -> set[str]:
    nodes = list(ast.walk(statement))
    stored = [node for node in nodes if isinstance(node, ast.Name)]
    names = {node.id for node in stored if isinstance(node.ctx, ast.Store)}
    imports = (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    aliases = (alias for node in imports for alias in node.names)
    return names | {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
