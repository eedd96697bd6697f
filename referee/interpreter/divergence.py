"""Finds branches and loops at which threads of one program may diverge, because of a volatile load.

All threads of a program take the same branch where they know the same values; the result of an
atomic is one value for all. But each thread makes a volatile load itself, and may see another value
while another program changes it. Then some threads reach a reduction, a sort, a product or a
barrier that others never reach. Only a part of a block is stored. A loop that only repeats the load
until a value has come may diverge: the threads meet again before anything depends on it.

Limits: the analysis propagates taint from volatile loads by name, through helpers and through
assignments in such branches, in any order of statements. It does not see that a value can no longer
change when it is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import triton.language as tl
import triton.runtime.interpreter as triton_interpreter

from referee.interpreter.calls import callee_and_args, is_atomic, is_volatile
from referee.interpreter.race_detector import Race

_REDUCTIONS = (
    "argmax argmin cumprod cumsum max min reduce reduce_or associative_scan softmax sum xor_sum"
)
_MOVES = (
    "bitonic_merge cat dot flip gather histogram interleave join permute ravel reshape "
    "sort split topk trans"
)
_TOGETHER = frozenset(f"tl.{name}" for name in f"debug_barrier {_REDUCTIONS} {_MOVES}".split())
_BLOCKS = frozenset({"tl.arange", "tl.make_block_ptr", "tl.full", "tl.zeros", "tl.zeros_like"})
_LONGEST = 80


def raise_divergence(value: Any, message: str) -> Any:
    """The condition, if it is a constant. Raises Race for a tensor: threads may diverge."""
    if isinstance(value, tl.tensor):
        # The judge reads the cause of a launch's end there.
        memory: Any = triton_interpreter._interpreter
        memory.violation = Race(message)
        raise memory.violation
    return value


def divergent_branches(functions: Sequence[ast.FunctionDef]) -> dict[ast.AST, str]:
    """The divergent branches and loops of a module of kernels, with a message for each.

    Only those count that contain an operation for all threads together.
    """
    if not any(is_volatile(node) for function in functions for node in ast.walk(function)):
        return {}
    volatile, blocks = (
        _TaintPropagation(functions, is_volatile, branches=True),
        _TaintPropagation(functions, _makes_block, branches=False),
    )
    together: set[str] = set()
    while (
        more := {one.name for one in functions if _first(one.body, blocks.of(one.name), together)}
        - together
    ):
        together |= more
    found: dict[ast.AST, str] = {}
    for function in functions:
        tainted, names = volatile.of(function.name), blocks.of(function.name)
        for node, rest in _decisions(function.body, []):
            test = node.iter if isinstance(node, ast.For) else node.test
            what = _first([*_branches(node), *rest], names, together) or _first_in_condition(
                node, tainted, names, together
            )
            if what and tainted(test):
                found[node] = _describe(function.name, node, test, what)
    return found


Holds = Callable[[ast.AST], bool]


class _TaintPropagation:
    """Propagates taint from calls by name, through assignments, helpers and perhaps branches."""

    def __init__(
        self, functions: Sequence[ast.FunctionDef], starts: Holds, *, branches: bool
    ) -> None:
        self._starts, self._branches = starts, branches
        self._names: dict[str, set[str]] = {function.name: set() for function in functions}
        self._returns: set[str] = set()
        self._parameters = {
            function.name: [one.arg for one in _arguments(function)] for function in functions
        }
        before = -1
        while before != (before := self._size()):
            for function in functions:
                self._block(function.name, function.body, False)

    def of(self, function: str) -> Holds:
        """A test of whether an expression in the function is tainted."""
        return lambda node: self._holds(function, node)

    def _size(self) -> int:
        return len(self._returns) + sum(map(len, self._names.values()))

    def _holds(self, function: str, node: ast.AST) -> bool:
        if is_atomic(node):
            return False
        if self._starts(node) or (isinstance(node, ast.Name) and node.id in self._names[function]):
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._names
        ):
            return node.func.id in self._returns
        return any(self._holds(function, part) for part in ast.iter_child_nodes(node))

    def _block(self, function: str, body: Sequence[ast.stmt], decided: bool) -> None:
        for node in body:
            self._calls(function, node)
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if decided or (node.value is not None and self._holds(function, node.value)):
                    self._names[function] |= {
                        part.id for part in ast.walk(target) if isinstance(part, ast.Name)
                    }
            elif isinstance(node, ast.Return) and (
                decided or (node.value is not None and self._holds(function, node.value))
            ):
                self._returns.add(function)
            elif isinstance(node, (ast.If, ast.While, ast.For)):
                holds = self._holds(function, node.iter if isinstance(node, ast.For) else node.test)
                if isinstance(node, ast.For) and holds:
                    self._names[function].add(ast.unparse(node.target))
                for inner in (node.body, node.orelse):
                    self._block(function, inner, decided or (self._branches and holds))

    def _calls(self, function: str, node: ast.stmt) -> None:
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in self._names
            ):
                called = call.func.id
                named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
                for name, value in (
                    dict(zip(self._parameters[called], call.args, strict=False)) | named
                ).items():
                    if self._holds(function, value):
                        self._names[called].add(name)


Decision = ast.If | ast.While | ast.For | ast.IfExp


def _decisions(
    body: Sequence[ast.stmt], after: Sequence[ast.stmt]
) -> list[tuple[Decision, list[ast.stmt]]]:
    """The conditions, with the later statements that each decides about because it may return."""
    found: list[tuple[Decision, list[ast.stmt]]] = []
    for place, node in enumerate(body):
        rest = [*body[place + 1 :], *after]
        if isinstance(node, (ast.If, ast.While, ast.For)):
            returns = any(isinstance(part, ast.Return) for part in ast.walk(node))
            found.append((node, rest if returns else []))
            found += [one for inner in (node.body, node.orelse) for one in _decisions(inner, rest)]
            values: list[ast.AST] = [node.iter if isinstance(node, ast.For) else node.test]
        else:
            values = [node]
        found += [
            (part, [])
            for value in values
            for part in ast.walk(value)
            if isinstance(part, ast.IfExp)
        ]
    return found


def _branches(node: Decision) -> list[ast.AST]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]


def _first(nodes: Sequence[ast.AST], block: Holds, functions: set[str]) -> str:
    """The name of the first operation that all threads must perform together, or ""."""
    # An atomic whose result no expression takes makes no thread wait.
    alone = {
        id(part.value) for node in nodes for part in ast.walk(node) if isinstance(part, ast.Expr)
    }
    for node in nodes:
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                name, by_place = callee_and_args(call)
                waits = is_atomic(call) and id(call) not in alone
                moves = (is_atomic(call) or name in ("tl.load", "tl.store")) and any(
                    map(block, by_place[:1])
                )
                if waits or moves or name in _TOGETHER or name in functions:
                    return name
    return ""


def _first_in_condition(node: Decision, volatile: Holds, block: Holds, functions: set[str]) -> str:
    """As `_first`, for a loop's condition, which is evaluated at every iteration.

    A reduction of the loaded value is part of the condition and does not count.
    """
    if not isinstance(node, ast.While):
        return ""
    calls = [call for call in ast.walk(node.test) if isinstance(call, ast.Call)]
    return next(
        (
            name
            for call in calls
            if not volatile(call) and (name := _first([ast.Return(_alone(call))], block, functions))
        ),
        "",
    )


def _alone(call: ast.Call) -> ast.Call:
    return ast.Call(call.func, call.args[:1], [])


def _describe(function: str, node: Decision, test: ast.expr, what: str) -> str:
    word = {ast.For: "for", ast.While: "while"}.get(type(node), "if")
    text = ast.unparse(test)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    sees = (
        f"threads of kernel `{function}` may part at `{word} {text}`, as each makes a "
        "volatile load itself and may see another value"
    )
    return f"{sees}, but all of them must come to `{what}` together"


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _makes_block(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and callee_and_args(node)[0] in _BLOCKS
