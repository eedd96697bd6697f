"""Which numbers choose between branches of a kernel when it is compiled.

`if BLOCK > 1024` leaves one branch in the compiled kernel, and what is wrong with the other shows only where that is compiled. Where all
of a condition is known from a launch's constants, what counts is how it comes out; else, as behind a helper's parameter or a name that
was assigned, the constants themselves. Limits: names are followed through assignments and helpers wherever these stand, so that too much
may count.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from referee.plans.plan import Argument, Value

_CALCULATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
Choice = tuple[str, Value]


class _Unknown(Exception):
    """What an expression comes to is not known here."""


@dataclass(frozen=True)
class Branches:
    """What chooses in one kernel: these conditions, of its parameters only, and the constants among these names."""

    conditions: tuple[ast.expr, ...]
    names: frozenset[str]

    def chosen(self, arguments: Sequence[Argument]) -> Iterator[Choice]:
        """What a launch with these arguments chooses."""
        constants = {argument.name: argument.value for argument in arguments if argument.constexpr}
        names = set(self.names)
        for condition in self.conditions:
            try:
                yield ast.unparse(condition), bool(_value(condition, constants))
            except (_Unknown, ArithmeticError, TypeError):
                names |= _names(condition)
        yield from ((name, constants[name]) for name in sorted(names & constants.keys()))


def branches(text: str) -> dict[str, Branches]:
    """Those of every function in a clean kernel module (`reading/kernels.py`)."""
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    conditions: dict[str, list[ast.expr]] = {name: [] for name in functions}
    names: dict[str, set[str]] = {name: set() for name in functions}
    for name, function in functions.items():
        changed = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        free = set(_parameters(function)) - changed
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                if _names(node.test) <= free:
                    conditions[name].append(node.test)
                else:
                    names[name] |= _names(node.test)
    _follow(functions, conditions, names)
    return {name: Branches(tuple(conditions[name]), frozenset(names[name])) for name in functions}


def _value(node: ast.expr, constants: Mapping[str, Value]) -> Any:
    """Of an expression of constants. Texts are compared only: what is calculated with them may be of any length."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in constants:
        return constants[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, constants)
    if isinstance(node, ast.BoolOp):
        values = [_value(part, constants) for part in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return _COMPARISONS[type(node.ops[0])](_value(node.left, constants), _value(node.comparators[0], constants))
    if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATIONS:
        left, right = _value(node.left, constants), _value(node.right, constants)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return _CALCULATIONS[type(node.op)](left, right)
    raise _Unknown


def _follow(functions: Mapping[str, ast.FunctionDef], conditions: Mapping[str, Sequence[ast.expr]], names: dict[str, set[str]]) -> None:
    """Adds what the names are made of, in the function itself or where it is called."""
    before = -1
    while before != (before := sum(map(len, names.values()))):
        for name, function in functions.items():
            for node in ast.walk(function):
                if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if any(_names(target) & names[name] for target in targets):
                        names[name] |= _names(node.value)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                    called = node.func.id
                    deciding = names[called].union(*map(_names, conditions[called]))
                    given = dict(zip(_parameters(functions[called]), node.args, strict=False))
                    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
                    names[name] |= {part for parameter in deciding & given.keys() for part in _names(given[parameter])}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
