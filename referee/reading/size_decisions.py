"""Decisions on sizes in host code: `N == 768`, `min(BLOCK, 4096)`, `if N % 256`, `N - 768`.

A kernel may be wrong behind one outcome of a decision alone. So every outcome must occur in a test
case, or the verdict names it. Only functions that `run` reaches are read. A decision on the number
of dimensions is none, nor is one whose outcome is a `raise`. A difference from a number is one, because
arithmetic such as `0 ** abs(N - 768)` needs no comparison. Quotients such as `768 // N` need none
either, so the integers in them are listed apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from referee.reading.host_allowed import ENTRY, needed
from referee.reading.kernels import is_kernel
from referee.reading.module_scope import Scope, read
from referee.reading.names import dotted
from referee.reading.source import parse

FALSE, TRUE = 1, 2
"""Bits of the outcomes of a decision. For `min` and `max`, TRUE means the first argument."""

MOST_SHOWN = 60
_LAST = (-1, 1)
"""Indices of the last dimension. An operation's tensors have one or two dimensions."""
LEAST_NUMBER = 2
"""Least number whose difference from a size is a decision. `N - 1` is usual arithmetic."""
_SIZES = frozenset({"numel", "size"})
_OF_NUMBERS = frozenset(
    {"abs", "bool", "float", "int", "list", "max", "min", "range", "round", "sum", "tuple"}
)
_CHOOSE = frozenset({"max", "min"})

Place = tuple[int, int, int, int]
"""First line and column, last line and column."""


@dataclass(frozen=True)
class Decision:
    """A decision: its place, its text, the integers in its function, and the outcomes that a test
    case must have. `of_rows` is False where the last dimension alone decides.
    """

    place: Place
    text: str
    constants: tuple[int, ...]
    wanted: int = TRUE | FALSE
    of_rows: bool = True

    @property
    def line(self) -> int:
        """The line that it begins in."""
        return self.place[0]


def place_of(node: ast.expr) -> Place:
    """Where a node stands in the text."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def decisions(source: str) -> tuple[Decision, ...]:
    """The decisions of a file, in the order of the text. Raises SourceError, ImportRefused."""
    tree = parse(source)
    found = {one.place: one for one in _File(read(tree)).decisions()}
    return tuple(found[place] for place in sorted(found))


@dataclass(frozen=True)
class Division:
    """A quotient or remainder of a size, with the integer in it."""

    line: int
    text: str
    number: int
    of_rows: bool


DIVIDES = (ast.FloorDiv, ast.Mod, ast.Div, ast.RShift, ast.BitAnd)
MOST_BITS = 24


def divisor(op: ast.operator, number: int | None, *, right: bool) -> int | None:
    """The size that a quotient, remainder, shift or mask by this number singles out, or None."""
    if isinstance(op, ast.RShift) and number is not None:
        return 1 << number if right and 0 < number <= MOST_BITS else None
    if number is None or number < LEAST_NUMBER:
        return None
    return None if isinstance(op, ast.BitAnd) and number >> MOST_BITS else number


def divisions(source: str) -> tuple[Division, ...]:
    """The quotients and remainders of a file. Raises SourceError, ImportRefused."""
    return tuple(_File(read(parse(source))).divisions())


class _File:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        reached = needed(scope)
        self._functions = {
            name: function
            for name, function in scope.functions.items()
            if name in reached and not is_kernel(function, scope)
        }
        self._sized: dict[str, set[str]] = {name: set() for name in self._functions}
        self._rowed: dict[str, set[str]] = {name: set() for name in self._functions}
        self._returning: set[str] = set()
        before = -1
        while before != (before := self._known()):
            for name, function in self._functions.items():
                self._follow(name, function)

    def _known(self) -> int:
        names = (*self._sized.values(), *self._rowed.values(), self._returning)
        return sum(map(len, names))

    def decisions(self) -> Iterator[Decision]:
        for name, function in self._functions.items():
            constants = tuple(sorted(self._constants(function)))
            harmless = {id(part) for node in _raising(function) for part in ast.walk(node)}
            for node, wanted in self._deciding(function, self._sized[name]):
                if id(node) not in harmless:
                    text = " ".join(ast.unparse(node).split())[:MOST_SHOWN]
                    of_rows = self._is_rowed(node, name)
                    yield Decision(place_of(node), text, constants, wanted, of_rows)

    def divisions(self) -> Iterator[Division]:
        """The quotients and remainders of sizes in all functions."""
        for name, function in self._functions.items():
            for node in ast.walk(function):
                match node:
                    case ast.BinOp(left=left, op=op, right=right) if isinstance(op, DIVIDES):
                        sized = self._is_sized(node, self._sized[name])
                        for side in (left, right) if sized else ():
                            value = _integer(self._named(side))
                            number = divisor(op, value, right=side is right)
                            if number is not None:
                                text = " ".join(ast.unparse(node).split())[:MOST_SHOWN]
                                of_rows = self._is_rowed(node, name)
                                yield Division(node.lineno, text, number, of_rows)

    def _named(self, node: ast.expr) -> ast.expr:
        """The value of a constant of the file."""
        return self._scope.assigned.get(node.id, node) if isinstance(node, ast.Name) else node

    def _deciding(
        self, function: ast.FunctionDef, sized: set[str]
    ) -> Iterator[tuple[ast.expr, int]]:
        both = TRUE | FALSE
        for node in ast.walk(function):
            match node:
                case ast.Compare() if self._is_sized(node, sized):
                    yield node, both
                case ast.Call(func=ast.Name(id=name), args=[_, _, *_]) if name in _CHOOSE:
                    if any(self._is_sized(given, sized) for given in node.args):
                        yield node, both
                case ast.BinOp(left=left, op=op, right=right):
                    numbers = {self._number(left, op), self._number(right, op)} - {None}
                    if numbers and self._is_sized(node, sized):
                        yield node, both
                case ast.For(iter=ast.Call(func=ast.Name(id="range")) as steps):
                    if self._is_sized(steps, sized):
                        yield steps, TRUE
                case ast.If(test=test) | ast.IfExp(test=test):
                    yield from self._truths(test, sized)
                case ast.Call(func=ast.Name(id="bool"), args=[test]):
                    yield from self._truths(test, sized)
                case ast.UnaryOp(op=ast.Not(), operand=test):
                    yield from self._truths(test, sized)
                case ast.BoolOp(values=values):
                    for value in values:
                        yield from self._truths(value, sized)

    def _number(self, node: ast.expr, op: ast.operator) -> int | None:
        """The number that the other side is compared with in `N - 768`, `N ^ 768`, `N + -768`."""
        named = self._scope.assigned.get(node.id) if isinstance(node, ast.Name) else node
        number = None if named is None else _integer(named)
        if number is None or not isinstance(op, (ast.Sub, ast.BitXor, ast.Add)):
            return None
        least = number if not isinstance(op, ast.Add) else -number
        return number if least >= LEAST_NUMBER else None

    def _truths(self, test: ast.expr, sized: set[str]) -> Iterator[tuple[ast.expr, int]]:
        seen_elsewhere = isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp))
        if not seen_elsewhere and self._is_sized(test, sized):
            yield test, TRUE | FALSE

    def _is_sized(self, node: ast.AST, sized: set[str]) -> bool:
        """Return True for a number, or several, that sizes of tensors decide on."""
        match node:
            case ast.Name(id=name):
                return name in sized
            case ast.Attribute(attr=name):
                return name == "shape"
            case ast.Call(func=ast.Attribute(attr=name)) if not dotted(
                node.func, self._scope.aliases
            ):
                return name in _SIZES
            case ast.Call(func=called, args=given, keywords=named):
                name = called.id if isinstance(called, ast.Name) else ""
                if name in self._returning:
                    return True
                full = dotted(called, self._scope.aliases) or ""
                if name not in _OF_NUMBERS | self._functions.keys() and not full.startswith(
                    ("triton.", "math.")
                ):
                    return False
                values = [*given, *(keyword.value for keyword in named)]
                return any(self._is_sized(value, sized) for value in values)
        return any(self._is_sized(child, sized) for child in ast.iter_child_nodes(node))

    def _is_rowed(self, node: ast.AST, name: str) -> bool:
        """Return True for a sized value that another dimension than the last may decide on."""
        match node:
            case ast.Name(id=known):
                return known in self._rowed[name]
            case ast.Subscript(value=ast.Attribute(attr="shape", value=tensor), slice=index):
                return not (self._is_given(tensor, name) and _integer(index) in _LAST)
            case ast.Call(func=called, args=given, keywords=[]) if (
                dotted(called, self._scope.aliases) or ""
            ).startswith(("triton.", "math.")):
                return any(self._is_rowed(one, name) for one in given)
            case ast.Attribute() | ast.Call(func=ast.Attribute()):
                return self._is_sized(node, self._sized[name])
            case ast.Call(func=ast.Name(id=called)) if called in self._functions:
                return self._is_sized(node, self._sized[name])
        return any(self._is_rowed(child, name) for child in ast.iter_child_nodes(node))

    def _is_given(self, node: ast.AST, name: str) -> bool:
        """Return True for a tensor of the caller in `run`, or its contiguous copy."""
        if name != ENTRY or not isinstance(node, ast.Name):
            return False
        function = self._functions[name]
        copies = {
            id(part.targets[0])
            for part in ast.walk(function)
            if isinstance(part, ast.Assign)
            and ast.unparse(part) == f"{node.id} = {node.id}.contiguous()"
        }
        return node.id in {one.arg for one in function.args.args} and all(
            isinstance(part.ctx, ast.Load) or id(part) in copies
            for part in ast.walk(function)
            if isinstance(part, ast.Name) and part.id == node.id
        )

    def _store(self, name: str, target: ast.AST, value: ast.AST) -> None:
        """Add the names that an assignment gives a sized value."""
        if not self._is_sized(value, self._sized[name]):
            return
        self._sized[name].update(_stored(target))
        match target, value:
            case ast.Tuple(elts=[*rows, ast.Name()]), ast.Attribute(attr="shape", value=tensor) if (
                self._is_given(tensor, name)
            ):
                self._rowed[name].update(part for one in rows for part in _stored(one))
            case _ if self._is_rowed(value, name):
                self._rowed[name].update(_stored(target))

    def _follow(self, name: str, function: ast.FunctionDef) -> None:
        """Add the names that get sized values in a function, or in one that it calls."""
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._store(name, target, value)
                case (
                    ast.AugAssign(target=target, value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.For(target=target, iter=value)
                ):
                    self._store(name, target, value)
                case ast.Return(value=ast.expr() as value):
                    if self._is_sized(value, self._sized[name]):
                        self._returning.add(name)
                case ast.Call(func=ast.Name(id=called)) if called in self._functions:
                    parameters = [one.arg for one in self._functions[called].args.args]
                    given = dict(zip(parameters, node.args, strict=False))
                    given |= {one.arg: one.value for one in node.keywords if one.arg}
                    for one, value in given.items():
                        if self._is_sized(value, self._sized[name]):
                            self._sized[called].add(one)
                            if self._is_rowed(value, name):
                                self._rowed[called].add(one)

    def _constants(self, function: ast.FunctionDef) -> set[int]:
        found = set(_integers(function))
        named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for name in named & self._scope.assigned.keys():
            found.update(_integers(self._scope.assigned[name]))
        return found


def _stored(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _raising(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.If) and all(isinstance(part, ast.Raise) for part in node.body):
            yield node.test


def _integers(node: ast.AST) -> Iterator[int]:
    for part in ast.walk(node):
        value = _integer(part)
        if value is not None:
            yield value


def _integer(node: ast.AST) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _integer(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _integer(left), _integer(right)
            if one is None or other is None:
                return None
            match op:
                case ast.Mult():
                    return one * other
                case ast.Add():
                    return one + other
                case ast.Sub():
                    return one - other
                case ast.LShift() if 0 <= other < 64:
                    return one << other
                case ast.Pow() if 0 <= other < 64 and abs(one) <= 16:
                    return int(one**other)
    return None
