"""What the tensors that `run` is given are beside their shapes: plain or parameters, each with or without gradients.

A layer in training gives it a tensor that requires gradients and parameters, a frozen one parameters that require none; launches may
depend on none of it. Runs in the trace worker.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from referee.ops.spec import TensorSpec

_TELLING_NAMES = frozenset({"type", "isinstance", "issubclass"})
# Of an autograd function's context.
_TELLING_ATTRIBUTE = "needs_input_grad"
_MAX_OF_EVERY_MIXTURE = 2


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
_KINDS = tuple(Kind(parameter, gradients) for parameter in (False, True) for gradients in (False, True))


def plain(inputs: Sequence[TensorSpec]) -> tuple[Kind, ...]:
    """All of them plain."""
    return (PLAIN,) * len(inputs)


def parameters(inputs: Sequence[TensorSpec]) -> tuple[Kind, ...]:
    """All that may require gradients are parameters that do."""
    return tuple(Kind(True, True) if getattr(torch, spec.dtype).is_floating_point else PLAIN for spec in inputs)


def mixtures(count: int) -> Iterator[tuple[Kind, ...]]:
    """Every mixture of few inputs; of more, those in which one at most differs from the others."""
    if count <= _MAX_OF_EVERY_MIXTURE:
        yield from product(_KINDS, repeat=count)
        return
    for one, others in product(_KINDS, repeat=2):
        for index in range(count if one != others else 1):
            yield (others,) * index + (one,) + (others,) * (count - index - 1)


def tells_kinds(tree: ast.AST) -> bool:
    """Whether a file has words that could ask of a tensor what it is, and of which nobody is told when it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _TELLING_NAMES:
            return True
        if _TELLING_ATTRIBUTE in (getattr(node, "attr", None), getattr(node, "value", None)):
            return True
    return False


def state(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    """What a call must leave as it is of the tensors themselves, which outlive it."""
    # Otherwise this would count as the file's question.
    with torch._C.DisableTorchFunction():
        return [(type(one), one.requires_grad, tuple(one.shape), tuple(one.stride()), one.storage_offset()) for one in tensors]
