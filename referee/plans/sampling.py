"""Chooses the traced plans to compile where none is replayed, so that every specialization is
compiled.

Triton compiles a kernel at its launch, and only the branches that constants choose. The interpreter
runs other branches even if they do not compile. `if BLOCK > 1024` leaves one branch in the compiled
kernel, and an error of the other shows only where that branch is compiled. If a launch's constants
determine a condition, its value counts. Otherwise, as with a helper's parameter or an assigned
name, the constants count.

Limits: names are followed through assignments and helpers in any position, so too many may count.
Numeric constants (block sizes) make a new specialization only where they choose between branches,
and at most `MOST_PLANS` plans are compiled.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from referee.ops.spec import Cell
from referee.plans.plan import Argument, DtypeValue, LaunchConfig, LaunchPlan, Value
from referee.reading.source import tree_of

_CALCULATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
Choice = tuple[str, Value]


class _Unknown(Exception):
    """The value of an expression is unknown here."""


@dataclass(frozen=True)
class Branches:
    """The conditions of one kernel on its parameters alone, and the names in the others."""

    conditions: tuple[ast.expr, ...]
    names: frozenset[str]

    def chosen(self, arguments: Sequence[Argument]) -> Iterator[Choice]:
        """The choices of a launch with these arguments."""
        constants = {argument.name: argument.value for argument in arguments if argument.constexpr}
        names = set(self.names)
        for condition in self.conditions:
            try:
                yield ast.unparse(condition), bool(_value(condition, constants))
            except (_Unknown, ArithmeticError, TypeError):
                names |= _names(condition)
        yield from ((name, constants[name]) for name in sorted(names & constants.keys()))


def kernel_branches(text: str) -> dict[str, Branches]:
    """The branches of every function in a clean kernel module (`reading/kernels.py`)."""
    functions = {
        node.name: node for node in tree_of(text).body if isinstance(node, ast.FunctionDef)
    }
    conditions: dict[str, list[ast.expr]] = {name: [] for name in functions}
    names: dict[str, set[str]] = {name: set() for name in functions}
    for name, function in functions.items():
        changed = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
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
    """The value of an expression of constants. Texts are only compared, because of their length."""
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
        return _COMPARISONS[type(node.ops[0])](
            _value(node.left, constants), _value(node.comparators[0], constants)
        )
    if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATIONS:
        left, right = _value(node.left, constants), _value(node.right, constants)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return _CALCULATIONS[type(node.op)](left, right)
    raise _Unknown


def _follow(
    functions: Mapping[str, ast.FunctionDef],
    conditions: Mapping[str, Sequence[ast.expr]],
    names: dict[str, set[str]],
) -> None:
    """Adds the names that these names depend on, in the function itself and at its calls."""
    before = -1
    while before != (before := sum(map(len, names.values()))):
        for name, function in functions.items():
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
                    and node.value is not None
                ):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if any(_names(target) & names[name] for target in targets):
                        names[name] |= _names(node.value)
                elif (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in functions
                ):
                    called = node.func.id
                    deciding = names[called].union(*map(_names, conditions[called]))
                    given = dict(zip(_parameters(functions[called]), node.args, strict=False))
                    given |= {
                        keyword.arg: keyword.value for keyword in node.keywords if keyword.arg
                    }
                    names[name] |= {
                        part
                        for parameter in deciding & given.keys()
                        for part in _names(given[parameter])
                    }


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [
        one.arg
        for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    ]


COMPILED_DTYPES = 3
"""Maximum number of dtypes that are compiled without another reason."""
MOST_PLANS = 8
"""Maximum number of compiled plans."""

LaunchSpecialization = tuple[str, frozenset[tuple[str, Value]]]


def compile_sample(
    traced: Sequence[tuple[Cell, LaunchPlan]],
    branches: Mapping[str, Branches],
    *,
    dtypes: int = COMPILED_DTYPES,
    ones: bool = True,
) -> list[LaunchPlan]:
    """The plan of the timed case, one per other dtype, and one per further specialization.

    `dtypes` is the number of dtypes. With `ones`, a number that is 1 makes a specialization,
    because Triton makes it a constant.
    """
    order = sorted(traced, key=lambda pair: pair[0].role != "bench")
    by_dtype: dict[str, LaunchPlan] = {}
    for cell, plan in order:
        by_dtype.setdefault(cell.inputs[0].dtype, plan)
    chosen = list(by_dtype.values())[:dtypes]
    seen = {way for plan in chosen for way in launch_specializations(plan, branches, ones)}
    for _, plan in order:
        new = set(launch_specializations(plan, branches, ones)) - seen
        if new and len(chosen) < MOST_PLANS:
            chosen.append(plan)
            seen |= new
    return chosen


def launch_specializations(
    plan: LaunchPlan, branches: Mapping[str, Branches], ones: bool
) -> Iterator[LaunchSpecialization]:
    """The specializations of a plan's launches: kernel name, and the arguments that choose
    branches.

    `ones` is as in `compile_sample`.
    """
    for _, launch in plan.launches():
        for config in launch.configs:
            chosen = branches[launch.kernel].chosen(config.arguments)
            yield launch.kernel, frozenset([*_deciding(config, ones), *chosen])


def _deciding(config: LaunchConfig, ones: bool) -> Iterator[tuple[str, Value]]:
    """The arguments that choose between branches at compile time."""
    for argument in config.arguments:
        value = argument.value
        flag = argument.constexpr and isinstance(value, bool | str | DtypeValue)
        if (
            value is None
            or flag
            or (ones and not argument.constexpr and type(value) is int and value == 1)
        ):
            yield argument.name, value
