"""What the tensors that `run` is given are beside their shapes: plain or parameters, each with or without gradients.

A layer in training gives it a tensor that requires gradients and parameters, a frozen one parameters that require none; launches may
depend on none of it. Nor on whether one tensor is given twice, where two may be the same. Runs in the trace worker.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import torch

from referee.ops.spec import TensorSpec

_TELLING_NAMES = frozenset({"type", "isinstance", "issubclass"})
_OF_NO_TENSOR = frozenset({"bool", "dict", "float", "int", "list", "str", "tuple"})
# Of an autograd function's context.
_TELLING_ATTRIBUTES = frozenset({"needs_input_grad"})
_MAX_OF_EVERY_MIXTURE = 2
_MAX_OF_TWO_KINDS = 4


@dataclass(frozen=True, order=True)
class Kind:
    """A plain tensor, or a parameter; integers require no gradients."""

    parameter: bool = False
    gradients: bool = False

    def make(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of this kind that shares the given one's memory."""
        gradients = self.gradients and tensor.is_floating_point()
        return torch.nn.Parameter(tensor, gradients) if self.parameter else tensor.requires_grad_(gradients)


PLAIN = Kind()
_TRAINED = Kind(True, True)
_KINDS = tuple(Kind(parameter, gradients) for parameter in (False, True) for gradients in (False, True))


def plain(inputs: Sequence[TensorSpec]) -> tuple[Kind, ...]:
    """All of them plain."""
    return (PLAIN,) * len(inputs)


def parameters(inputs: Sequence[TensorSpec]) -> tuple[Kind, ...]:
    """All that may require gradients are parameters that do."""
    return tuple(_TRAINED if getattr(torch, spec.dtype).is_floating_point else PLAIN for spec in inputs)


def mixtures(count: int, of: Sequence[int]) -> Iterator[tuple[Kind, ...]]:
    """For `count` inputs every mixture of these, the others plain, where these are few.

    Of more, those in which one at most differs from the rest, and every one of plain tensors and parameters that require gradients.
    """
    for kinds in dict.fromkeys(_mixtures(len(of))):
        placed = dict(zip(of, kinds, strict=True))
        yield tuple(placed.get(number, PLAIN) for number in range(count))


def _mixtures(count: int) -> Iterator[tuple[Kind, ...]]:
    if count <= _MAX_OF_EVERY_MIXTURE:
        yield from product(_KINDS, repeat=count)
        return
    for one, rest in product(_KINDS, repeat=2):
        yield from ((rest,) * index + (one,) + (rest,) * (count - index - 1) for index in range(count))
    if count <= _MAX_OF_TWO_KINDS:
        yield from product((PLAIN, _TRAINED), repeat=count)


def tells_kinds(tree: ast.AST) -> bool:
    """Whether a file has words that could ask of a tensor what it is, and of which nobody is told when it does."""
    nodes = list(ast.walk(tree))
    bound = _bound(nodes)
    told = {id(node.func) for node in nodes if isinstance(node, ast.Call) and len(node.args) == 2 and _is_common(node.args[1], bound)}
    for node in nodes:
        match node:
            case ast.Name(id="isinstance") if id(node) in told:
                continue
            case ast.Name(id=name) if name in _TELLING_NAMES:
                return True
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.alias(name=name) if name in _TELLING_ATTRIBUTES:
                return True
    return False


def _is_common(asked: ast.expr, bound: Set[str]) -> bool:
    """Whether that is a class, or some, of which all kinds of tensors are, or none."""
    match asked:
        case ast.Attribute(value=ast.Name(id="torch"), attr="Tensor"):
            return "torch" not in bound
        case ast.Name(id=name):
            return name in _OF_NO_TENSOR - bound
        case ast.Tuple(elts=several):
            return all(_is_common(one, bound) for one in several)
    return False


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that a file gives to anything, but for what `import torch` does."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Import(names=names):
                found.update(one.asname for one in names if one.asname)
            case ast.ImportFrom(names=names):
                found.update(one.asname or one.name for one in names)
            case ast.arg(arg=name) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.MatchMapping(rest=str(name)):
                found.add(name)
    return found


# For each input the number of the first one that is the same tensor.
Same = tuple[int, ...]
_METHODS = frozenset(name for name in dir(torch.Tensor) if callable(getattr(torch.Tensor, name)))


def tells_same(tree: ast.AST) -> bool:
    """Whether a file has words that could ask whether two tensors are one: a method that is not called belongs to one of them."""
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    # These are modules where the file gives the names to nothing else.
    modules = {"torch", "triton", "tl"} - _bound(node for node in nodes if not isinstance(node, (ast.Import, ast.ImportFrom)))
    for node in nodes:
        match node:
            case ast.Attribute() if _root(node) in modules:
                continue
            case ast.Attribute(attr=name) if name in _METHODS and id(node) not in called:
                return True
            case ast.Name(id="getattr") | ast.MatchClass(kwd_attrs=[_, *_]):
                return True
    return False


def _root(node: ast.expr) -> str:
    """The first name of `tl.extra.cuda`; no module leads to an input."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def sames(inputs: Sequence[TensorSpec]) -> list[Same]:
    """Which of the inputs may be one tensor: every two that are alike, and all that are; not that none are."""
    alike: dict[TensorSpec, list[int]] = defaultdict(list)
    for number, spec in enumerate(inputs):
        alike[replace(spec, name="")].append(number)
    groups = [group for numbers in alike.values() for group in (*combinations(numbers, 2), tuple(numbers)) if len(group) > 1]
    return [tuple(group[0] if number in group else number for number in range(len(inputs))) for group in dict.fromkeys(groups)]


def merged(plan: Any, same: Same) -> Any:
    """The plan's data as it is where inputs are one tensor, with the first one's buffer in every step and output."""
    return {name: _renumbered(part, same) if name in ("steps", "outputs") else part for name, part in plan.items()}


def _renumbered(data: Any, same: Same) -> Any:
    if isinstance(data, dict):
        return {key: _first(value, same) if key == "buffer" else _renumbered(value, same) for key, value in data.items()}
    return [_renumbered(item, same) for item in data] if isinstance(data, list) else data


def _first(buffer: int, same: Same) -> int:
    """The number of the buffer, which is the input's for the first ones."""
    return same[buffer] if buffer < len(same) else buffer


def state(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    """What a call must leave as it is of the tensors themselves, which outlive it."""
    # Otherwise this would count as the file's question.
    with torch._C.DisableTorchFunction():
        return [(type(one), one.requires_grad, tuple(one.shape), tuple(one.stride()), one.storage_offset()) for one in tensors]
