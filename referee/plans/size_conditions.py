"""Conditions of kernels on sizes: `n_cols == 768`, `row > 5000`; and how launches decide them.

Each condition compares two integers, and the text writes down one of them. A difference from a
written number counts as a comparison with it. The arguments and the
grid of a launch give the bounds of the other. Only a condition whose integer differs between
launches counts, because others do not depend on sizes. Quotients and remainders by written numbers
are collected too. Limits: bounds are wider than the values, so an outcome that never occurs may
count as possible; numbers that a kernel loads, and those that a loop counts, are unknown.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from referee.plans.bounds import Bounds, called, combined, is_exact, turned
from referee.plans.plan import Launch, LaunchConfig, LaunchPlan
from referee.reading.size_decisions import (
    DIVIDES,
    FALSE,
    LEAST_NUMBER,
    MOST_SHOWN,
    TRUE,
    divisor,
)
from referee.reading.source import tree_of

MOST_DEPTH = 4
LARGEST = 1e4

Key = tuple[str, int, int]
"""Function, line and column in the clean kernel module."""

_THROUGH = frozenset({"to", "cast", "multiple_of", "max_contiguous", "broadcast_to", "expand_dims"})
_CHOOSE = frozenset({"max", "maximum", "min", "minimum"})
_MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}


@dataclass
class Condition:
    """A condition, with the bounds and outcomes that launches had so far."""

    function: str
    text: str
    constant: int
    seen: set[Bounds] = field(default_factory=set)
    outcomes: int = 0

    @property
    def missing(self) -> int:
        """The outcomes that no launch had, if the condition depends on sizes."""
        return (TRUE | FALSE) & ~self.outcomes if len(self.seen) > 1 else 0


def conditions(text: str, plans: Iterable[LaunchPlan]) -> dict[Key, Condition]:
    """The conditions of a clean kernel module, as the launches of these plans decide them."""
    return _walked(text, plans)[0]


def divisions(text: str, plans: Iterable[LaunchPlan]) -> dict[int, tuple[str, str]]:
    """The integers that divide sizes in a kernel or are divided by them, with function and text."""
    return _walked(text, plans)[1]


def _walked(
    text: str, plans: Iterable[LaunchPlan]
) -> tuple[dict[Key, Condition], dict[int, tuple[str, str]]]:
    functions = {
        node.name: node for node in tree_of(text).body if isinstance(node, ast.FunctionDef)
    }
    constants = {
        node.targets[0].id: value
        for node in tree_of(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if (value := _literal(node.value, {})) is not None
    }
    found: dict[Key, Condition] = {}
    divided: dict[int, tuple[str, str]] = {}
    for launch, config in _launches(plans):
        walk = _Walk(functions, constants, config, found, divided)
        walk.walk(launch.kernel, _arguments(config), 0)
    return found, divided


def compared_numbers(text: str) -> tuple[float, ...]:
    """The fractions and other float numbers in comparisons of a clean kernel module.

    Zero and numbers beyond LARGEST are left out, because other cases have such values.
    """
    constants = {
        node.targets[0].id: node.value
        for node in tree_of(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    found: dict[float, None] = {}
    for compare in (node for node in ast.walk(tree_of(text)) if isinstance(node, ast.Compare)):
        parts = list(ast.walk(compare))
        parts += [
            part
            for name in parts
            if isinstance(name, ast.Name) and name.id in constants
            for part in ast.walk(constants[name.id])
        ]
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, float):
                if 0.0 < part.value <= LARGEST:
                    found |= {part.value: None, -part.value: None}
    return tuple(found)


def _launches(plans: Iterable[LaunchPlan]) -> Iterator[tuple[Launch, LaunchConfig]]:
    for plan in plans:
        for step in plan.steps:
            if isinstance(step, Launch):
                yield from ((step, config) for config in step.configs)


def _arguments(config: LaunchConfig) -> dict[str, Bounds]:
    return {
        one.name: (one.value, one.value)
        for one in config.arguments
        if isinstance(one.value, int) and not isinstance(one.value, bool)
    }


class _Walk:
    """Walks the functions of one launch with bounds of their integers."""

    def __init__(
        self,
        functions: Mapping[str, ast.FunctionDef],
        constants: Mapping[str, int],
        config: LaunchConfig,
        found: dict[Key, Condition],
        divided: dict[int, tuple[str, str]],
    ) -> None:
        self._functions, self._constants = functions, constants
        self._grid, self._found, self._divided = config.grid, found, divided

    def walk(self, name: str, known: dict[str, Bounds], depth: int) -> None:
        """Note the conditions of a function whose parameters have these bounds."""
        self._block(name, self._functions[name].body, known, depth)

    def _block(
        self, name: str, body: Sequence[ast.stmt], known: dict[str, Bounds], depth: int
    ) -> dict[str, Bounds]:
        """Walk statements in their order. Returns the bounds after them."""
        for statement in body:
            known = self._statement(name, statement, dict(known), depth)
        return known

    def _statement(
        self, name: str, statement: ast.stmt, known: dict[str, Bounds], depth: int
    ) -> dict[str, Bounds]:
        match statement:
            case ast.If(test=test, body=body, orelse=orelse):
                self._look(name, test, known, depth)
                one, other = (self._block(name, part, known, depth) for part in (body, orelse))
                return {
                    each: (min(one[each][0], other[each][0]), max(one[each][1], other[each][1]))
                    for each in one.keys() & other.keys()
                }
            case ast.For() | ast.While():
                changed = _stored(statement)
                known = {each: bounds for each, bounds in known.items() if each not in changed}
                ahead = statement.iter if isinstance(statement, ast.For) else statement.test
                self._look(name, ahead, known, depth)
                inside = known | self._counted(statement, known)
                self._block(name, statement.body, inside, depth)
                return known
        self._look(name, statement, known, depth)
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ):
                pass
            case ast.AugAssign(target=ast.Name(id=target), op=op, value=added):
                value = ast.BinOp(ast.Name(target, ast.Load()), op, added)
            case _:
                stored = _stored(statement)
                return {each: old for each, old in known.items() if each not in stored}
        bounds = self._bounds(value, known)
        others = {each: old for each, old in known.items() if each != target}
        return others if bounds is None else others | {target: bounds}

    def _counted(self, loop: ast.stmt, known: dict[str, Bounds]) -> dict[str, Bounds]:
        """The bounds of the variable of a `for` loop."""
        match loop:
            case ast.For(target=ast.Name(id=target), iter=ast.Call(args=given)):
                ends = [self._bounds(one, known) for one in given[:2]]
                if ends and (last := ends[-1]) is not None:
                    first = ends[0] if len(ends) > 1 and ends[0] is not None else (0, 0)
                    return {target: (first[0], max(first[0], last[1] - 1))}
        return {}

    def _look(self, name: str, part: ast.AST, known: dict[str, Bounds], depth: int) -> None:
        """Note the conditions and quotients in an expression or a plain statement."""
        for node in ast.walk(part):
            match node:
                case ast.Compare(ops=[_]):
                    self._note(name, node, known)
                case ast.BinOp(op=ast.Sub() | ast.BitXor(), right=right):
                    number = _literal(right, self._constants)
                    if number is not None and number >= LEAST_NUMBER:
                        self._note(name, _as_equality(node), known)
                case ast.BinOp(left=left, op=op, right=right) if isinstance(op, DIVIDES):
                    for one, other in ((left, right), (right, left)):
                        number = divisor(op, _literal(one, self._constants), right=one is right)
                        if number is not None and self._bounds(other, known) is not None:
                            shown = " ".join(ast.unparse(node).split())[:MOST_SHOWN]
                            self._divided.setdefault(number, (name, shown))
                case ast.Call(args=[left, right]) if _name(node) in _CHOOSE:
                    # `min(N, 4096)` decides as `N <= 4096` does.
                    numbers = [_literal(one, self._constants) for one in (left, right)]
                    if any(number is not None and number >= LEAST_NUMBER for number in numbers):
                        decides = ast.Compare(left, [ast.LtE()], [right])
                        self._note(name, ast.copy_location(decides, node), known, node)
                case ast.Call(func=ast.Name(id=called)) if called in self._functions:
                    if depth < MOST_DEPTH:
                        self.walk(called, self._given(node, known), depth + 1)

    def _given(self, call: ast.Call, known: dict[str, Bounds]) -> dict[str, Bounds]:
        assert isinstance(call.func, ast.Name)
        parameters = [one.arg for one in self._functions[call.func.id].args.args]
        given = dict(zip(parameters, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg}
        found = {name: self._bounds(value, known) for name, value in given.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def _note(
        self, name: str, node: ast.Compare, known: dict[str, Bounds], shown: ast.expr | None = None
    ) -> None:
        left, operator, right = node.left, type(node.ops[0]), node.comparators[0]
        constant = _literal(right, self._constants)
        if constant is None:
            constant = _literal(left, self._constants)
            left, operator = right, _MIRRORED.get(operator, operator)
        bounds = None if constant is None else self._bounds(left, known)
        if constant is None and operator in (ast.Eq, ast.NotEq):
            # Two exact numbers: a threshold may be an argument.
            one, other = self._bounds(node.left, known), self._bounds(right, known)
            if one is not None and other is not None and is_exact(one) and is_exact(other):
                constant, bounds = int(other[0]), (one[0], one[0])
        if constant is None or bounds is None:
            return
        key = (name, node.lineno, node.col_offset)
        text = " ".join(ast.unparse(shown or node).split())[:MOST_SHOWN]
        condition = self._found.setdefault(key, Condition(name, text, constant))
        condition.seen.add(bounds)
        condition.outcomes |= _outcomes(operator, bounds, constant)

    def _bounds(self, node: ast.expr, known: Mapping[str, Bounds]) -> Bounds | None:
        """The least and the largest value of an integer; None for one that is not known."""
        literal = _literal(node, self._constants)
        if literal is not None:
            return literal, literal
        match node:
            case ast.Name(id=name):
                return known.get(name)
            case ast.Subscript(value=value):
                return self._bounds(value, known)
            case ast.UnaryOp(op=op, operand=operand):
                inside = self._bounds(operand, known)
                return None if inside is None else turned(op, inside)
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._bounds(left, known), self._bounds(right, known)
                return None if one is None or other is None else combined(op, one, other)
            case ast.Call(func=ast.Attribute(attr=name, value=of), args=given):
                if name == "program_id":
                    return 0, max(0, self._axis(given) - 1)
                if name == "num_programs":
                    return self._axis(given), self._axis(given)
                if name in _THROUGH:
                    return self._bounds(given[0] if _is_language(of) and given else of, known)
                return self._of_call(name, given, known)
            case ast.Call(func=ast.Name(id=name), args=given):
                return self._of_call(name, given, known)
        return None

    def _of_call(
        self, name: str, given: Sequence[ast.expr], known: Mapping[str, Bounds]
    ) -> Bounds | None:
        bounds = [self._bounds(one, known) for one in given]
        return called(name, [one for one in bounds if one is not None], len(given))

    def _axis(self, given: list[ast.expr]) -> int:
        axis = _literal(given[0], self._constants) if given else 0
        return self._grid[axis] if axis in (0, 1, 2) else max(self._grid)


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _stored(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _as_equality(node: ast.BinOp) -> ast.Compare:
    """`n == 768` for `n - 768`, with which arithmetic can decide as well."""
    return ast.copy_location(ast.Compare(node.left, [ast.Eq()], [node.right]), node)


def _is_language(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "tl"


def _literal(node: ast.expr, constants: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Constant(value=float(value)) if value.is_integer():
            return int(value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.Call(func=ast.Attribute(attr="constexpr"), args=[value]):
            return _literal(value, constants)
        case ast.UnaryOp(op=ast.USub(), operand=value):
            inner = _literal(value, constants)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _literal(left, constants), _literal(right, constants)
            if one is not None and other is not None:
                found = combined(op, (one, one), (other, other))
                return int(found[0]) if found and math.isfinite(found[0]) else None
    return None


def _outcomes(operator: type[ast.cmpop], bounds: Bounds, constant: int) -> int:
    low, high = bounds
    possible = {
        ast.Eq: (low <= constant <= high, not low == high == constant),
        ast.NotEq: (not low == high == constant, low <= constant <= high),
        ast.Lt: (low < constant, high >= constant),
        ast.LtE: (low <= constant, high > constant),
        ast.Gt: (high > constant, low <= constant),
        ast.GtE: (high >= constant, low < constant),
    }.get(operator, (True, True))
    return (TRUE if possible[0] else 0) | (FALSE if possible[1] else 0)
