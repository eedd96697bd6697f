"""The runs of one test case in Triton's interpreter, comparisons of their bits, and keys to share
them.

The smith often writes one kernel in several ways. The interpreter runs it once, and the result
holds for all of them: equal keys mean equal plans and kernels of equal structure. Every draft is
still screened, traced and compiled.

Limits: only passing runs are shared, because the words of a failure name the kernel's arguments.
Kernels with atomics, several configurations or booleans have no key; a store converts to booleans
differently from a cast.

The structure of a kernel is its text without its names. Kernels of one structure load the same
elements, compute the same values and store them in the same order, so they give the same results.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from referee.interpreter.interpret import Execution
from referee.ops.spec import Cell
from referee.plans.plan import Launch, LaunchPlan, Step, views_of
from referee.reading.kernels import KernelModule
from referee.reading.source import tree_of
from referee.verdict import CellResult

if TYPE_CHECKING:
    from torch import Tensor

WAYS = {
    True: " with products added unrounded and sums in another order",
    False: " with every product rounded and sums in order",
}
"""Description of the run in the other numeric mode, by `relaxed`."""

TIMEOUT = "timeout"
"""The guard of a case that was not judged because time ran out."""


@dataclass(frozen=True)
class CaseRun:
    """One run of a case. It `repeats` the first run's bits, or is an autotuner's (`rehearsed`)."""

    execution: Execution
    when: str = ""
    repeats: bool = False
    rehearsed: bool = False


class RunKeys:
    """The keys of one candidate's plans."""

    def __init__(self, module: KernelModule) -> None:
        self._module = module

    @cached_property
    def _structures(self) -> dict[str, Hashable]:
        return structures(self._module.text)

    def key(self, plan: LaunchPlan) -> Hashable | None:
        """The key of a plan, or None if its runs cannot be shared."""
        steps = [self._step(step) for step in plan.steps]
        views = (view for step in plan.steps for view in views_of(step))
        if None in steps or any(view.dtype == "bool" for view in views):
            return None
        return repr(replace(plan, steps=())), tuple(steps)

    def _step(self, step: Step) -> Hashable | None:
        if not isinstance(step, Launch):
            return repr(step)
        if len(step.configs) != 1 or step.tuning is not None:
            return None
        # The interpreter ignores warps and stages.
        (config,) = step.configs
        signature = self._module.signature(step.kernel)
        if signature is None or signature.atomic:
            return None
        given = {
            argument.name: (argument.constexpr, repr(argument.value))
            for argument in config.arguments
        }
        return (
            self._structures[step.kernel],
            config.grid,
            tuple(given.get(one.name) for one in signature.parameters),
        )


def same_bits(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether two runs gave the same bits, except for the sign of zeros and NaNs.

    numpy's vectorisation decides whether the interpreter's minimum of -0 and +0 is negative, and
    which of two NaNs a sum or a product passes on.
    """
    import torch

    return all(torch.equal(_bytes(a), _bytes(b)) for a, b in zip(left, right, strict=True))


def _bytes(tensor: Tensor) -> Tensor:
    import torch

    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor = (tensor + 0.0).masked_fill(tensor.isnan(), math.nan)
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def out_of_time(cell: Cell, reason: str) -> CellResult:
    """The result of a case that was not judged because time ran out."""
    return CellResult(
        cell.name, cell.role, "skipped", detail=f"time ran out: {reason}", guard=TIMEOUT
    )


def structures(text: str) -> dict[str, Hashable]:
    """The structure of every function in a clean kernel module (`kernels.py`), by name."""
    module = tree_of(text)
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    dumped = {name: ast.dump(node) for name, node in functions.items()}
    rest = tuple(ast.dump(node) for node in module.body if not isinstance(node, ast.FunctionDef))
    found: dict[str, Hashable] = {}
    for name, function in functions.items():
        named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        helpers = tuple(dumped.values()) if named & functions.keys() else ()
        found[name] = rest, helpers, ast.dump(_Renamer(function).visit(function))
    return found


class _Renamer(ast.NodeTransformer):
    """Numbers the names that a function binds, in the order of the text, and drops its own name."""

    def __init__(self, function: ast.FunctionDef) -> None:
        stored = (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        bound = [
            *(one.arg for one in _parameters(function)),
            *(node.id for node in sorted(stored, key=_place)),
        ]
        # A number is no name in Python, so it cannot be a name of the module.
        self._names = {name: str(number) for number, name in enumerate(dict.fromkeys(bound))}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rename the function itself. Kernels have no inner functions."""
        node.name = ""
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._names[node.arg]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
