"""Numbers of a user's reference that come once each because of what they are for: places that are stored to, such as a permutation's.

Two answers stored to one place leave whichever came last, and on a GPU either: what a kernel gives there says nothing. So numbers stay
without repetitions where the example has none, although so many drawn at random would have some, and where the order of equal ones shows
in the answer. It does not where rows are only read or added up: then some come twice. Limits: which order shows is tried with each number
next to an equal one, and by reversing operands along dimensions as long as the numbers are many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

UNLIKELY = 0.01
MOST_TRIED = 16  # evaluations of the reference
CLOSE = 0.01  # of the answer's norm: what another order of additions changes is less, in half precision too

Answer = tuple[Tensor, ...] | None


def once_within(tensor: Tensor, size: int) -> int:
    """How many neighbouring numbers below `size` are all different, each time and hardly by chance: all, or a row of the last dimension's.

    0 where there is no such number.
    """
    for width in dict.fromkeys((tensor.numel(), tensor.shape[-1])):
        rows = tensor.reshape(-1, width)
        if width <= size and not bool((rows.sort(-1).values.diff(dim=-1) == 0).any()):
            chance = rows.shape[0] * sum(math.log1p(-number / size) for number in range(width))
            return width if chance < math.log(UNLIKELY) else 0
    return 0


def order_shows(answer: Callable[[Sequence[Tensor]], Answer], example: Sequence[Tensor], position: int) -> bool:
    """Whether the answer depends on which of two equal numbers at `position` comes first. `answer` is None for what is refused."""
    numbers = example[position].clone(memory_format=torch.contiguous_format)
    length = numbers.shape[-1]
    numbers[..., 1::2] = numbers[..., 0 : length - length % 2 : 2]
    paired = [*example[:position], numbers, *example[position + 1 :]]
    usual = answer(paired)
    if usual is None:
        return False
    axes = [[axis for axis, size in enumerate(operand.shape) if size == length] for operand in paired]
    ways = itertools.product(*([None, *each] if number != position else [numbers.dim() - 1] for number, each in enumerate(axes)))
    for way in itertools.islice(ways, MOST_TRIED):
        found = answer([one if axis is None else one.flip(axis) for one, axis in zip(paired, way, strict=True)])
        if found is not None and all(_alike(new, old, length) for new, old in zip(found, usual, strict=True)):
            return False
    return True


def _alike(new: Tensor, old: Tensor, length: int) -> bool:
    """Whether both are the same where they are finite, or one is the other reversed along a dimension that is so long."""
    if new.shape != old.shape:
        return False
    before, after = (tensor.double().nan_to_num(0.0, 0.0, 0.0) for tensor in (old, new))
    turned = [after, *(after.flip(axis) for axis, size in enumerate(new.shape) if size == length)]
    return any(float((one - before).norm()) <= CLOSE * float(before.norm()) for one in turned)
