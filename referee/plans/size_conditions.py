"""Conditions of kernels on sizes: `n_cols == 768`, `row > 5000`; and how launches decide them.

Each condition compares two integers, and the text writes down one of them. A difference from a
written number counts as a comparison with it. The arguments and the
grid of a launch give the bounds of the other. Only a condition whose integer differs between
launches counts, because others do not depend on sizes. Limits: bounds are wider than the values, so
an outcome that never occurs may count as possible; numbers that a kernel loads are unknown.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from referee.plans.plan import Launch, LaunchConfig, LaunchPlan
from referee.reading.size_decisions import FALSE, LEAST_NUMBER, MOST_SHOWN, TRUE
from referee.reading.source import tree_of

MOST_DEPTH = 4
LARGEST = 1e4

Bounds = tuple[float, float]
Key = tuple[str, int, int]
"""Function, line and column in the clean kernel module."""

_THROUGH = frozenset({"to", "cast", "multiple_of", "max_contiguous", "broadcast_to", "expand_dims"})
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
    for launch, config in _launches(plans):
        _Walk(functions, constants, config, found).walk(launch.kernel, _arguments(config), 0)
    return found


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
    ) -> None:
        self._functions, self._constants = functions, constants
        self._grid, self._found = config.grid, found

    def walk(self, name: str, known: dict[str, Bounds], depth: int) -> None:
        """Note the conditions of a function whose parameters have these bounds."""
        function = self._functions[name]
        times: dict[str, int] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                times[node.id] = times.get(node.id, 0) + 1
        known = {one: bounds for one, bounds in known.items() if one not in times}
        statements = sorted(
            (node for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.For))),
            key=lambda node: node.lineno,
        )
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if times[target] == 1:
                    if (bounds := self._bounds(value, known)) is not None:
                        known[target] = bounds
                case ast.For(target=ast.Name(id=target), iter=ast.Call(args=given)) if (
                    times[target] == 1
                ):
                    ends = [self._bounds(one, known) for one in given[:2]]
                    if (last := ends[-1]) is not None:
                        first = ends[0] if len(ends) > 1 and ends[0] is not None else (0, 0)
                        known[target] = (first[0], max(first[0], last[1] - 1))
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                self._note(name, node, known)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.BitXor)):
                number = _literal(node.right, self._constants)
                if number is not None and number >= LEAST_NUMBER:
                    self._note(name, _as_equality(node), known)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in self._functions and depth < MOST_DEPTH:
                    self.walk(node.func.id, self._given(node, known), depth + 1)

    def _given(self, call: ast.Call, known: dict[str, Bounds]) -> dict[str, Bounds]:
        assert isinstance(call.func, ast.Name)
        parameters = [one.arg for one in self._functions[call.func.id].args.args]
        given = dict(zip(parameters, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg}
        found = {name: self._bounds(value, known) for name, value in given.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def _note(self, name: str, node: ast.Compare, known: dict[str, Bounds]) -> None:
        left, operator, right = node.left, type(node.ops[0]), node.comparators[0]
        constant = _literal(right, self._constants)
        if constant is None:
            constant = _literal(left, self._constants)
            left, operator = right, _MIRRORED.get(operator, operator)
        bounds = None if constant is None else self._bounds(left, known)
        if constant is None and operator in (ast.Eq, ast.NotEq):
            # Two exact numbers: a threshold may be an argument.
            one, other = self._bounds(node.left, known), self._bounds(right, known)
            if one is not None and other is not None and _is_exact(one) and _is_exact(other):
                constant, bounds = int(other[0]), (one[0], one[0])
        if constant is None or bounds is None:
            return
        key = (name, node.lineno, node.col_offset)
        text = " ".join(ast.unparse(node).split())[:MOST_SHOWN]
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
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._bounds(left, known), self._bounds(right, known)
                return None if one is None or other is None else _combined(op, one, other)
            case ast.Call(func=ast.Attribute(attr=name, value=of), args=given):
                if name == "program_id":
                    return 0, max(0, self._axis(given) - 1)
                if name == "num_programs":
                    return self._axis(given), self._axis(given)
                if name in _THROUGH:
                    return self._bounds(given[0] if _is_language(of) and given else of, known)
                bounds = [self._bounds(one, known) for one in given]
                return _called(name, [one for one in bounds if one is not None], len(given))
            case ast.Call(func=ast.Name(id=name), args=given):
                bounds = [self._bounds(one, known) for one in given]
                return _called(name, [one for one in bounds if one is not None], len(given))
        return None

    def _axis(self, given: list[ast.expr]) -> int:
        axis = _literal(given[0], self._constants) if given else 0
        return self._grid[axis] if axis in (0, 1, 2) else max(self._grid)


def _as_equality(node: ast.BinOp) -> ast.Compare:
    """`n == 768` for `n - 768`, with which arithmetic can decide as well."""
    return ast.copy_location(ast.Compare(node.left, [ast.Eq()], [node.right]), node)


def _is_exact(bounds: Bounds) -> bool:
    return bounds[0] == bounds[1]


def _is_language(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "tl"


def _literal(node: ast.expr, constants: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
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
                found = _combined(op, (one, one), (other, other))
                return int(found[0]) if found and math.isfinite(found[0]) else None
    return None


def _combined(op: ast.operator, one: Bounds, other: Bounds) -> Bounds | None:
    match op:
        case ast.Add():
            return one[0] + other[0], one[1] + other[1]
        case ast.Sub():
            return one[0] - other[1], one[1] - other[0]
        case ast.Mult():
            products = [a * b for a in one for b in other]
            return min(products), max(products)
        case ast.FloorDiv() if other[0] > 0:
            quotients = [a // b for a in one for b in other]
            return min(quotients), max(quotients)
        case ast.Mod() if other[0] > 0:
            if _is_exact(one) and _is_exact(other):
                return one[0] % other[0], one[0] % other[0]
            return 0, other[1] - 1
    return None


def _called(name: str, given: list[Bounds], count: int) -> Bounds | None:
    if len(given) != count or not given:
        return None
    match name, given:
        case "arange", [first, last]:
            return first[0], last[1] - 1
        case "cdiv", [one, other] if other[0] > 0:
            return -(-one[0] // other[1]), -(-one[1] // other[0])
        case (("minimum" | "min"), [one, other]):
            return min(one[0], other[0]), min(one[1], other[1])
        case (("maximum" | "max"), [one, other]):
            return max(one[0], other[0]), max(one[1], other[1])
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
