"""Integers of a user's reference that number the rows of something: labels, token ids, segments, positions in a table.

An example of few labels shows neither the first class nor the last one, at which wrong kernels are found. Whether an operand numbers
something is seen by trying: the size of some dimension is refused in it, and one less is not. Limits: the dimension must be one of another
operand or of an output; numbers below zero, such as those that are to be ignored, are as in the example, as long as they are few. Nothing
is tried of a reference that works on a device of its own: there a number too large would end the process's use of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MOST_BELOW = 4


class _OnCpuOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises RuntimeError where a tensor is elsewhere."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Evaluate one operation and look at what it is given and gives."""
        found = function(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.device.type != "cpu" for leaf in tree_leaves((args, kwargs, found))):
            raise RuntimeError("a tensor is on another device")
        return found


def numbering(eager: Callable[..., Any], example: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], position: int) -> str:
    """The recipe for the operand at `position`, empty unless it numbers something. `shapes` are those of the outputs."""
    tensor = example[position]
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or not tensor.numel():
        return ""
    below = torch.unique(tensor[tensor < 0]).tolist()
    if len(below) > MOST_BELOW:
        return ""
    example = [operand.cpu() for operand in example]
    others = [other.shape for number, other in enumerate(example) if number != position]
    largest, most = int(tensor.max()), torch.iinfo(tensor.dtype).max
    for size in sorted({size for shape in (*others, *shapes) for size in shape if largest < size <= most}):
        if _shapes(eager, example, position, size - 1) != list(shapes):
            break
        if _shapes(eager, example, position, size) is None:
            return ":".join(["index", str(size), *map(str, below)])
    return ""


def _shapes(eager: Callable[..., Any], example: Sequence[Tensor], position: int, number: int) -> list[tuple[int, ...]] | None:
    """Those of the answer where one element of an operand is that number; None where the reference refuses it.

    A number too large comes after one that is not, so what works on another device has been refused by then.
    """
    tried = example[position].clone(memory_format=torch.contiguous_format)
    tried.view(-1)[0] = number
    try:
        with _OnCpuOnly():  # type: ignore[no-untyped-call]
            found = eager(*example[:position], tried, *example[position + 1 :])
    except Exception:
        return None
    return [tuple(out.shape) for out in (found if isinstance(found, tuple) else (found,))]
