"""What of a file is for tensors that are not on the GPU: `if not x.is_cuda: return torch.softmax(x, -1)`.

The inputs of `run` are on the GPU, so that it never runs, and there torch may compute the answer. Everything else is checked there as it
is elsewhere, and the tracer would refuse what torch computes. Limits: asked of an input itself, in `run`, by an `if` that stands alone.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from referee.reading.host_vocabulary import DECORATORS, TENSOR_COMPUTE
from referee.reading.module_scope import Scope, bound_names, is_main_guard
from referee.reading.names import dotted

_FUNCTIONAL = """
    celu cross_entropy elu gelu glu hardshrink hardsigmoid hardswish hardtanh kl_div layer_norm leaky_relu linear log_softmax logsigmoid
    mish mse_loss nll_loss normalize relu relu6 rms_norm selu sigmoid silu softmax softmin softplus softshrink softsign tanh tanhshrink
"""
_DRAWN = frozenset({"bernoulli", "normal"})
_PURE = frozenset(word for word in TENSOR_COMPUTE - _DRAWN if not word.endswith("_"))
# Of a set, or a list, these change it.
METHODS = _PURE - {"add", "sort"}
WORDS = _PURE | {"cat", "layer_norm", "rms_norm", "stack", *(f"nn.functional.{word}" for word in _FUNCTIONAL.split())}


def never_run(tree: ast.Module, scope: Scope, needed: Collection[int]) -> frozenset[int]:
    """The nodes that never run, by identity. `needed` are the functions that a judgement may come to (`reachable.py`)."""
    run = scope.functions.get("run")
    if run is None or not all(_is_known(node, scope) for node in run.decorator_list):
        return frozenset()
    if any(isinstance(node, ast.Name) and node.id == "run" for node in _needed(tree.body, needed)):
        # Then the file itself may call it, with a tensor that is elsewhere.
        return frozenset()
    given = [*run.args.posonlyargs, *run.args.args]
    inputs = {argument.arg for argument in given[: len(given) - len(run.args.defaults)]}
    found: list[ast.stmt] = []
    for number, statement in enumerate(run.body):
        if isinstance(statement, ast.If):
            found += _elsewhere(statement, run.body[number + 1 :], inputs)
        inputs.difference_update(bound_names(statement))
    return frozenset(id(node) for statement in found for node in ast.walk(statement))


def _is_known(decorator: ast.expr, scope: Scope) -> bool:
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator, scope.aliases) in DECORATORS


def _needed(body: Sequence[ast.AST], needed: Collection[int]) -> Iterator[ast.AST]:
    """Every node that may run."""
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt) and is_main_guard(node):
            continue
        yield node
        unneeded = isinstance(node, ast.FunctionDef) and id(node) not in needed and any(node is one for one in body)
        pending.extend(node.decorator_list if unneeded and isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node))


def _elsewhere(statement: ast.If, after: Sequence[ast.stmt], inputs: Collection[str]) -> list[ast.stmt]:
    """What an `if` comes to where an input is not on the GPU."""
    there = _is_there(statement.test, inputs)
    if there is False:
        return statement.body
    if there is True:
        return [*statement.orelse, *(after if isinstance(statement.body[-1], ast.Return) else ())]
    return []


def _is_there(test: ast.expr, inputs: Collection[str]) -> bool | None:
    """Whether a condition asks that an input is on the GPU, or that it is not; None where it asks anything else."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            there = _is_there(operand, inputs)
            return None if there is None else not there
        case ast.BoolOp(op=ast.Or(), values=values):
            # One input that is elsewhere will do.
            return False if all(_is_there(value, inputs) is False for value in values) else None
        case ast.BoolOp(op=ast.And(), values=values):
            return True if all(_is_there(value, inputs) is True for value in values) else None
        case ast.Attribute(value=ast.Name(id=name), attr="is_cuda" | "is_cpu" as asked) if name in inputs:
            return asked == "is_cuda"
        case ast.Compare(
            left=ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="device"), attr="type"),
            ops=[ast.Eq() | ast.NotEq() as operator],
            comparators=[ast.Constant(value="cuda" | "cpu" as place)],
        ) if name in inputs:
            return (place == "cuda") == isinstance(operator, ast.Eq) if place == "cuda" or isinstance(operator, ast.Eq) else None
    return None


def advised(root: ast.AST) -> Iterator[int]:
    """The nodes that seem to be for a tensor that is not on the GPU: what an `if` that asks for that, among other things, comes to."""
    for node in ast.walk(root):
        if isinstance(node, (ast.If, ast.IfExp)):
            asked = {_place(part) for part in ast.walk(node.test)}
            if asked & {"cpu", "cuda"}:
                taken = node.body if asked & {"cpu", "not"} else node.orelse
                yield from (id(part) for one in (taken if isinstance(taken, list) else [taken]) for part in ast.walk(one))


def _place(node: ast.AST) -> str:
    """What a part of a condition says of where a tensor is: "cpu", "cuda", or that it is "not" there."""
    if isinstance(node, (ast.Not, ast.NotEq)):
        return "not"
    word = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
    return {"is_cpu": "cpu", "cpu": "cpu", "is_cuda": "cuda", "cuda": "cuda"}.get(word, "") if isinstance(word, str) else ""
