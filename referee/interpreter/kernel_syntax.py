"""Rewrites syntax of kernels that the compiler reads in another way than Python.

- `and`, `or` and `not` are elementwise on tensors; Python would ask a whole tensor for one truth
  value. Constants decide as in Python, from left to right; all tensors are evaluated
  (`visit_BoolOp`).
- `numbers_as_tensors` describes where a number becomes a tensor.
- An atomic with an unused result becomes a call that says so, because threads do not wait for it.
- A loop whose loads the compiler may issue early becomes a call, and so does a divergent condition.
- A block as a condition raises, because the compiler refuses it. So does a chain of comparisons
  before Triton 3.9.

New names begin with two underscores, which no kernel may use. Runs in the interpreter worker.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

import triton
import triton.language as tl

from referee.compiling.ttgir import NOWHERE
from referee.interpreter import numbers_as_tensors as numbers
from referee.interpreter.calls import is_atomic
from referee.interpreter.divergence import divergent_branches, raise_divergence
from referee.interpreter.pipelines import inlined_barriers, stages
from referee.versions import facts

Part = Callable[[], Any]

UNREAD = "__unread"
"""Name of the call around an atomic with an unused result; the interpreter binds it."""

AHEAD = "__ahead"
"""Name of the call around a loop whose loads may be issued early; the interpreter binds it."""


def both(*parts: Part) -> Any:
    """The expression `a and b and ...`."""
    return _joined(parts, False)


def either(*parts: Part) -> Any:
    """The expression `a or b or ...`."""
    return _joined(parts, True)


def negated(value: Any) -> Any:
    """The expression `not value`."""
    return value == 0 if isinstance(value, tl.tensor) else not value


class NotCompiled(Exception):
    """Triton's compiler refuses this syntax."""


def checked_condition(condition: Any) -> Any:
    """The condition of a branch or a loop.

    Raises NotCompiled for a block, which Triton's interpreter takes as true.
    """
    if isinstance(condition, tl.tensor) and condition.numel.value != 1:
        raise NotCompiled(
            "Boolean value of Tensor with more than one value is ambiguous: a block "
            "cannot decide a branch"
        )
    return condition


def chain(first: Part, *rest: Callable[..., Any]) -> Any:
    """`a < b < c`, where `rest` has each comparison and the operand after it. Every operand is
    evaluated once. Raises NotCompiled for a version of Triton that compiles no chains.
    """
    if not facts(triton.__version__).chained_comparisons:
        raise NotCompiled(
            "simultaneous multiple comparison is not supported: write (a < b) & (b < c)"
        )
    operands = [first()]

    def compared(compare: Callable[[Any, Any], Any], operand: Part) -> Any:
        operands.append(operand())
        return compare(*operands[-2:])

    pairs = zip(rest[::2], rest[1::2], strict=True)
    return both(*(functools.partial(compared, *pair) for pair in pairs))


NAMES: dict[str, Callable[..., Any]] = {
    "__asked": checked_condition,
    "__chain": chain,
    "__both": both,
    "__either": either,
    "__negated": negated,
    "__assigned": numbers.assigned,
    "__chosen": numbers.chosen,
    "__min": numbers.least,
    "__max": numbers.most,
    "__noted": numbers.noted,
    "__returned": numbers.returned,
    "__parting": raise_divergence,
    "__ready": functools.partial,
}


def rewrite_kernels(text: str, unread: frozenset[int] = frozenset()) -> str:
    """The text of a kernel module, with calls of the functions in NAMES in place of special syntax.

    `unread` are lines with atomics whose results the compiler drops (`ttgir`).
    """
    module = ast.parse(text)
    functions = [statement for statement in module.body if isinstance(statement, ast.FunctionDef)]
    barriers, parts = inlined_barriers(functions), divergent_branches(functions)
    for function in functions:
        _Calls(function, barriers, parts, unread).rewrite()
    return ast.unparse(ast.fix_missing_locations(module))


def larger(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """The combiner of `tl.argmax` and `tl.max(..., return_indices=True)`, without `and`."""
    return _picked(value1 > value2, value1, index1, value2, index2, tie_break_left)


def smaller(value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    """As `larger`, for the minimum."""
    return _picked(value1 < value2, value1, index1, value2, index2, tie_break_left)


def _picked(
    first: Any, value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any
) -> Any:
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
        self,
        function: ast.FunctionDef,
        barriers: frozenset[str],
        parts: Mapping[ast.AST, str],
        unread: frozenset[int],
    ) -> None:
        self._function, self._barriers, self._parts, self._unread = (
            function,
            barriers,
            parts,
            unread,
        )
        self._read = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        self._joins = (
            sum(
                isinstance(node, ast.Return) and node.value is not None
                for node in ast.walk(function)
            )
            > 1
        )

    def rewrite(self) -> None:
        """Rewrites the function, and records whether a tensor decides on one of several returns."""
        self._function.body = [self.visit(statement) for statement in self._function.body]
        if self._joins:
            self._function.body.insert(
                0, ast.Assign([ast.Name("__decided", ast.Store())], ast.List([], ast.Load()))
            )

    def visit_For(self, node: ast.For) -> ast.For:
        """Wraps the iterator in a call where the compiler may issue loads early."""
        ahead = stages(node, self._barriers)
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            node.iter.args = [self._parting(node, bound) for bound in node.iter.args]
        if ahead is not None:
            node.iter = _call(AHEAD, node.iter, ahead)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        """Wraps the condition in a call, and in a second one if the branch returns."""
        returns = self._joins and any(isinstance(part, ast.Return) for part in ast.walk(node))
        self.generic_visit(node)
        node.test = self._condition(node, node.test)
        if returns:
            node.test = _call("__noted", node.test, ast.Name("__decided", ast.Load()))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.test = self._condition(node, node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """Wraps a value in a call if the function has several returns."""
        self.generic_visit(node)
        if self._joins and node.value is not None:
            node.value = _call("__returned", node.value, ast.Name("__decided", ast.Load()))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        if is_atomic(node.value):
            node.value = _unread(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Wraps the assigned value in a call, and an atomic in one more if it is never read."""
        self.generic_visit(node)
        if is_atomic(node.value) and not any(
            isinstance(target, ast.Name) and target.id in self._read for target in node.targets
        ):
            node.value = _unread(node.value)
        node.value = _call("__assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Becomes a plain assignment, unless it defines a constant."""
        self.generic_visit(node)
        if node.value is None or ast.unparse(node.annotation) == "tl.constexpr":
            return node
        return ast.Assign([node.target], _call("__assigned", node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        assert isinstance(node.target, ast.Name)
        calculation = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return self.visit_Assign(ast.Assign([node.target], calculation))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _call(
            "__chosen", self._condition(node, node.test), _later(node.body), _later(node.orelse)
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replaces `min` and `max`, and wraps an atomic whose result the compiler drops."""
        self.generic_visit(node)
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if is_atomic(node) and not self._unread.isdisjoint((NOWHERE, *lines)):
            return _unread(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.func.id = f"__{node.func.id}"
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Becomes a call with one function without arguments for each part."""
        self.generic_visit(node)
        return _call(
            "__both" if isinstance(node.op, ast.And) else "__either", *map(_later, node.values)
        )

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        pairs = zip(node.ops, node.comparators, strict=True)
        rest = (part for op, operand in pairs for part in (_comparison(op), _later(operand)))
        return _call("__chain", _later(node.left), *rest)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("__negated", node.operand) if isinstance(node.op, ast.Not) else node

    def _condition(self, node: ast.AST, test: ast.expr) -> ast.expr:
        return _call("__asked", self._parting(node, test))

    def _parting(self, node: ast.AST, test: ast.expr) -> ast.expr:
        return (
            _call("__parting", test, ast.Constant(self._parts[node]))
            if node in self._parts
            else test
        )


def _unread(atomic: ast.Call) -> ast.expr:
    """The arguments are evaluated before the call, because they may contain atomics too."""
    return _call(
        UNREAD,
        ast.Call(ast.Name("__ready", ast.Load()), [atomic.func, *atomic.args], atomic.keywords),
    )


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _later(value: ast.expr, *names: str) -> ast.expr:
    parameters = [ast.arg(name) for name in names]
    return ast.Lambda(
        ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[]),
        value,
    )


def _comparison(operator: ast.cmpop) -> ast.expr:
    left, right = ast.Name("__left", ast.Load()), ast.Name("__right", ast.Load())
    return _later(ast.Compare(left, [operator], [right]), "__left", "__right")
