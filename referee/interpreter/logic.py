"""What a kernel's syntax means to the compiler, where it means something else to Python.

`and`, `or` and `not` are elementwise on tensors, where Python asks a whole tensor for one truth value. Constants decide as in Python, from
left to right; tensors are all evaluated. So does Triton's compiler (`visit_BoolOp`). Where a number becomes a tensor in it, is in
`numbers_as_tensors.py`. An atomic whose result nothing reads is a call that says so, because threads do not wait for it; so is what a loop
goes through whose loads the compiler may move ahead, and a condition at which threads part. Names that begin with two underscores are
free, because no kernel may use them. What no compiler takes raises: a block for a condition, which has no truth value, and a chain of
comparisons. Runs in the interpreter worker.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

import triton.language as tl

from referee.compiling.ttgir import NOWHERE
from referee.interpreter import numbers_as_tensors as numbers
from referee.interpreter.calls import is_atomic
from referee.interpreter.parting import parting, partings
from referee.interpreter.pipelines import inlined_barriers, stages

Part = Callable[[], Any]

UNREAD = "__unread"
"""What a call for an atomic is named whose result nothing reads; whoever runs the kernels binds it."""

AHEAD = "__ahead"
"""What a call is named that goes through the turns of a loop whose loads may be made turns ahead; bound as UNREAD is."""


def both(*parts: Part) -> Any:
    """`a and b and ...`"""
    return _joined(parts, False)


def either(*parts: Part) -> Any:
    """`a or b or ...`"""
    return _joined(parts, True)


def negated(value: Any) -> Any:
    """`not value`"""
    return value == 0 if isinstance(value, tl.tensor) else not value


class NotCompiled(Exception):
    """Triton's compiler takes no such thing."""


def asked(condition: Any) -> Any:
    """What a branch or a loop depends on. Raises NotCompiled for a block, which Triton's interpreter takes for true."""
    if isinstance(condition, tl.tensor) and condition.numel.value != 1:
        raise NotCompiled("Boolean value of Tensor with more than one value is ambiguous: a block cannot decide a branch")
    return condition


def chain() -> None:
    """`a < b < c`. Raises NotCompiled."""
    raise NotCompiled("simultaneous multiple comparison is not supported: write (a < b) & (b < c)")


NAMES: dict[str, Callable[..., Any]] = {
    "__asked": asked, "__chain": chain, "__both": both, "__either": either, "__negated": negated, "__assigned": numbers.assigned,
    "__chosen": numbers.chosen, "__min": numbers.least, "__max": numbers.most, "__noted": numbers.noted, "__returned": numbers.returned,
    "__parting": parting, "__ready": functools.partial,
}  # fmt: skip


def elementwise(text: str, unread: frozenset[int] = frozenset()) -> str:
    """The text of a kernel module where all syntax of kernels that means something else to Python is a call of a function in NAMES.

    `unread` are lines with atomics of whose results the compiler leaves nothing that reads them (`ttgir`).
    """
    module = ast.parse(text)
    functions = [statement for statement in module.body if isinstance(statement, ast.FunctionDef)]
    barriers, parts = inlined_barriers(functions), partings(functions)
    for function in functions:
        _Calls(function, barriers, parts, unread).rewrite()
    return ast.unparse(ast.fix_missing_locations(module))


def larger(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """The combiner of `tl.argmax` and `tl.max(..., return_indices=True)`, which is written with `and` and `or`."""
    return _picked(value1 > value2, value1, index1, value2, index2, tie_break_left)


def smaller(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """As `larger`, for the minimum."""
    return _picked(value1 < value2, value1, index1, value2, index2, tie_break_left)


def _picked(first: Any, value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    if tie_break_left:
        first = first | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)


def _joined(parts: tuple[Part, ...], decisive: bool) -> Any:
    found: Any = None
    value: Any = None
    for part in parts:
        value = part()
        if not isinstance(value, tl.tensor):
            if bool(value) is decisive:
                return value
        elif found is None:
            found = value
        else:
            found = (found != 0) | (value != 0) if decisive else (found != 0) & (value != 0)
    return value if found is None else found


class _Calls(ast.NodeTransformer):
    def __init__(
        self, function: ast.FunctionDef, barriers: frozenset[str], parts: Mapping[ast.AST, str], unread: frozenset[int]
    ) -> None:
        self._function, self._barriers, self._parts, self._unread = function, barriers, parts, unread
        self._read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        self._joins = sum(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function)) > 1

    def rewrite(self) -> None:
        """A function that returns at several places remembers whether a tensor decided about one of them."""
        self._function.body = [self.visit(statement) for statement in self._function.body]
        if self._joins:
            self._function.body.insert(0, ast.Assign([ast.Name("__decided", ast.Store())], ast.List([], ast.Load())))

    def visit_For(self, node: ast.For) -> ast.For:
        """Over a call, where the compiler may move loads ahead."""
        ahead = stages(node, self._barriers)
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            node.iter.args = [self._parting(node, bound) for bound in node.iter.args]
        if ahead is not None:
            node.iter = _call(AHEAD, node.iter, ahead)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        """The condition is a call, and that of a return one more."""
        returns = self._joins and any(isinstance(part, ast.Return) for part in ast.walk(node))
        self.generic_visit(node)
        node.test = self._condition(node, node.test)
        if returns:
            node.test = _call("__noted", node.test, ast.Name("__decided", ast.Load()))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        """The condition is a call."""
        self.generic_visit(node)
        node.test = self._condition(node, node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """A call for a value that is joined with others."""
        self.generic_visit(node)
        if self._joins and node.value is not None:
            node.value = _call("__returned", node.value, ast.Name("__decided", ast.Load()))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """A call for an atomic."""
        self.generic_visit(node)
        if is_atomic(node.value):
            node.value = _unread(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """A call for what is assigned, and one for an atomic where it is read nowhere."""
        self.generic_visit(node)
        if is_atomic(node.value) and not any(isinstance(target, ast.Name) and target.id in self._read for target in node.targets):
            node.value = _unread(node.value)
        node.value = _call("__assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """As a plain assignment, if it defines no constant."""
        self.generic_visit(node)
        if node.value is None or ast.unparse(node.annotation) == "tl.constexpr":
            return node
        return ast.Assign([node.target], _call("__assigned", node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """As a plain assignment."""
        assert isinstance(node.target, ast.Name)
        calculation = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return self.visit_Assign(ast.Assign([node.target], calculation))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """A call with functions of both values."""
        self.generic_visit(node)
        return _call("__chosen", self._condition(node, node.test), _later(node.body), _later(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Of the builtins `min` and `max`: a call of another function; one around an atomic of whose result the compiler leaves nothing."""
        self.generic_visit(node)
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if is_atomic(node) and not self._unread.isdisjoint((NOWHERE, *lines)):
            return _unread(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.func.id = f"__{node.func.id}"
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """A call with one function without arguments for each part."""
        self.generic_visit(node)
        return _call("__both" if isinstance(node.op, ast.And) else "__either", *map(_later, node.values))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """A call for a chain."""
        self.generic_visit(node)
        return node if len(node.ops) == 1 else _call("__chain")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """A call for `not`."""
        self.generic_visit(node)
        return _call("__negated", node.operand) if isinstance(node.op, ast.Not) else node

    def _condition(self, node: ast.AST, test: ast.expr) -> ast.expr:
        return _call("__asked", self._parting(node, test))

    def _parting(self, node: ast.AST, test: ast.expr) -> ast.expr:
        return _call("__parting", test, ast.Constant(self._parts[node])) if node in self._parts else test


def _unread(atomic: ast.Call) -> ast.expr:
    """What is given for it is evaluated before, and may be an atomic too."""
    return _call(UNREAD, ast.Call(ast.Name("__ready", ast.Load()), [atomic.func, *atomic.args], atomic.keywords))


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _later(value: ast.expr) -> ast.expr:
    return ast.Lambda(ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), value)
