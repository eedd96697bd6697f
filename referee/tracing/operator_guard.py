"""What the operators of a file's host code may be given, looked at while the file runs.

`text % value` shows what a value is, and `keys & others` makes a set, whose order depends on the process; `%` divides and `-` subtracts as
well, and of what type a value is the text does not say. So both sides are handed to a check before the operator gets them. Messages are
left alone, for they do not come back, and so is what the screen itself takes for a set. Runs in the trace worker.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, ItemsView, Iterator, KeysView
from dataclasses import replace
from typing import Any

from referee.reading.host_functions import stored
from referee.reading.host_words import excused, meaning
from referee.reading.local_names import local_names
from referee.reading.module_scope import Scope
from referee.tracing.violation import Violations

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Mod": operator.mod,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "Sub": operator.sub,
}
_VIEWS = (KeysView, ItemsView)
_MANY = (set, frozenset, list, tuple, dict, *_VIEWS)
_OF_A_SET = "this makes a set of a view of a dict, whose order is not fixed; write `.keys()` where it stands, and sorted(...) around it"


class OperatorChecks:
    """The checks that a guarded file calls; `shown` refuses what a text may not be made of."""

    def __init__(self, violations: Violations, shown: Callable[[Any], Any]) -> None:
        self._violations = violations
        self._shown = shown

    def result(self, name: str, left: Any, right: Any) -> Any:
        """`left % right`."""
        self.right(name, left, right)
        return _OPERATORS[name](left, right)

    def right(self, name: str, left: Any, right: Any) -> Any:
        """The right side of `left %= right`."""
        if name == "Mod":
            if isinstance(left, (str, bytes, bytearray)):
                self._shown(right)
        elif isinstance(left, _VIEWS) or isinstance(right, _VIEWS):
            raise self._violations.add("state", _OF_A_SET)
        return right

    def alone(self, name: str, right: Any) -> Any:
        """The right side of `box[0] %= right`, whatever is on the left, which is not to be looked up twice."""
        if name == "Mod":
            self._shown(right)
        elif isinstance(right, _MANY):
            raise self._violations.add("state", "an operator with `=` changes what may be a set, in a container; write it out")
        return right


def messages(tree: ast.Module, scope: Scope) -> frozenset[int]:
    """The identities of the tree's nodes whose values become a message and nothing else."""
    scope = replace(scope, aliases={name: full for name, full in scope.aliases.items() if name not in scope.rebound})
    bound = {name for statement in tree.body if not isinstance(statement, ast.FunctionDef) for name in _bound(statement)}
    return frozenset(excused(tree, meaning(tree, scope, local_names(tree), frozenset(bound))))


def called(node: ast.BinOp, check: str) -> ast.expr:
    """`left % right` as a call of the check, or the node itself where nothing can come of it."""
    name = type(node.op).__name__
    if name not in _OPERATORS or _is_plain(node.right) or _is_number(node.left):
        return node
    if name != "Mod" and (_is_view(node.left) or _is_view(node.right)):
        return node
    return _call(node, check, "result", [ast.Constant(name), node.left, node.right])


def augmented(node: ast.AugAssign, check: str) -> None:
    """Puts the check around the right side of `target %= right`."""
    name = type(node.op).__name__
    if name not in _OPERATORS or _is_plain(node.value):
        return
    if isinstance(node.target, ast.Name):
        given: list[ast.expr] = [ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target), node.value]
        node.value = _call(node, check, "right", [ast.Constant(name), *given])
    else:
        node.value = _call(node, check, "alone", [ast.Constant(name), node.value])


def _call(node: ast.AST, check: str, method: str, given: list[ast.expr]) -> ast.expr:
    asked = ast.Attribute(ast.Name(check, ast.Load()), method, ast.Load())
    return ast.copy_location(ast.Call(asked, given, []), node)


def _bound(statement: ast.stmt) -> Iterator[str]:
    yield from ([statement.name] if isinstance(statement, ast.ClassDef) else stored(statement))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes))


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_view(node: ast.expr) -> bool:
    """True where the screen sees it too (`host_sets.py`)."""
    match node:
        case ast.Call(func=ast.Attribute(attr="keys" | "items")):
            return True
    return False
