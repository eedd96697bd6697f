"""Finds integer operands that number the rows of something: labels, token ids, segments, positions.

An example with few labels shows neither the first nor the last class, at which wrong kernels fail.
Trials decide: the smallest dimension above all numbers must be refused as a number, and one less
accepted at every place.

Limits: the dimension must belong to another operand or an output. Operands of one or two elements
and of one-bit numbers keep their example's kind. A few negative numbers, such as ignored labels,
are kept. References that work on another device are not tried, because a number out of range would
disable the device for this process.

Numbers of some operands must not repeat, such as those of a permutation. If two answers go to the
same place, the last one wins, and on a GPU either may. So numbers stay unique if the example has no
repetition, random numbers would have one, and the order of equal numbers changes the answer. Reads
and sums do not depend on the order. Limits: the order is tested with each number next to an equal
one, and by reversing operands along dimensions of that length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from referee.ops.torch_compat import Mode, as_tuple, equal

FEWEST, MASKED, MOST_BELOW, MOST_SIZES = 3, 2, 4, 6
PIECE, MOST_NEGATIVE = 1 << 12, 1 << 20
UNLIKELY = 0.01
MOST_TRIED = 16  # Maximum number of evaluations of the reference.
# Share of the answer's norm; another order of additions changes less, even in half precision.
CLOSE = 0.01

Answer = tuple[Tensor, ...] | None


class _OnCpuOnly(Mode):  # type: ignore[no-untyped-call]
    """Raises RuntimeError if a tensor is on another device."""

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        found = function(*args, **kwargs)
        if any(
            isinstance(leaf, Tensor) and leaf.device.type != "cpu"
            for leaf in tree_leaves((args, kwargs, found))
        ):
            raise RuntimeError("a tensor is on another device")
        return found


class _Tried:
    """A reference with other numbers in one operand of an example."""

    def __init__(self, eager: Callable[..., Any], example: Sequence[Tensor], position: int) -> None:
        self._eager, self._position = eager, position
        self._example = [operand.cpu() for operand in example]

    def at_first(self, number: int) -> tuple[Tensor, ...] | None:
        tried = self._example[self._position].clone(memory_format=torch.contiguous_format)
        tried.view(-1)[0] = number
        return self.of(tried)

    def of(self, tried: Tensor) -> tuple[Tensor, ...] | None:
        """The answer to these numbers; None if the reference refuses them."""
        at = self._position
        return self.answer([*self._example[:at], tried, *self._example[at + 1 :]])

    def answer(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
        """The answer to these operands; None if the reference refuses them."""
        try:
            # Without the check, torch reads wherever the columns of a sparse matrix point.
            with _OnCpuOnly(), torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
                found = self._eager(*(operand.cpu() for operand in operands))
        except Exception:
            return None
        return as_tuple(found)


def numbering(
    eager: Callable[..., Any],
    example: Sequence[Tensor],
    shapes: Sequence[tuple[int, ...]],
    position: int,
) -> str:
    """The recipe for the operand at `position`, or "" if it does not number rows.

    `shapes` are those of the outputs.
    """
    tensor = example[position]
    other = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    if other or tensor.numel() < FEWEST:
        return ""
    below = _below_zero(tensor)
    if below is None:
        return ""
    tried = _Tried(eager, example, position)
    for size in _sizes(example, shapes, position):
        # A number out of range comes after a valid one, which already fails on another device.
        last = tried.at_first(size - 1)
        if not _is_usual(last, shapes):
            continue
        if tried.at_first(size) is not None:
            # The operand numbers something larger, or nothing.
            continue
        if not _takes_all(tried, tensor, size, shapes):
            return ""
        # For rows counted from one, number zero means the last row, from behind.
        if int(tensor.min()) > 0 and _same(tried.at_first(0), last):
            return ""
        once = 0 if below else once_within(tensor, size)
        if once and order_shows(tried.answer, example, position):
            return f"distinct:{size}:{once}"
        return ":".join(["index", str(size), *map(str, below)])
    return ""


def _sizes(
    example: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], position: int
) -> list[int]:
    """Candidate numbers of rows: dimensions above all numbers, the operand's own last."""
    tensor = example[position]
    # Numbers of two rows are masks too, which have rows of one value.
    least, most = max(int(tensor.max()), MASKED), torch.iinfo(tensor.dtype).max
    others = [other.shape for number, other in enumerate(example) if number != position]
    larger = {size for shape in (*others, *shapes) for size in shape if least < size <= most}
    return [*sorted(larger - set(tensor.shape)), *sorted(larger & set(tensor.shape))][:MOST_SIZES]


def _below_zero(tensor: Tensor) -> list[int] | None:
    """The different numbers below zero; None if there are more than a few."""
    found: set[int] = set()
    # Most tensors with many negative numbers show them in any piece.
    for piece in (tensor.flatten()[:PIECE], tensor):
        negative = piece[piece < 0]
        if negative.numel() > MOST_NEGATIVE:
            return None
        found = set(negative.tolist())
        if len(found) > MOST_BELOW:
            return None
    return sorted(found)


def _takes_all(tried: _Tried, tensor: Tensor, size: int, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether all elements may be the first or the last number.

    The first element may have another limit than the rest.
    """
    ends = (torch.full_like(tensor, number, device="cpu") for number in (0, size - 1))
    return all(_is_usual(tried.of(end), shapes) for end in ends)


def _is_usual(found: tuple[Tensor, ...] | None, shapes: Sequence[tuple[int, ...]]) -> bool:
    return found is not None and [tuple(out.shape) for out in found] == list(shapes)


def _same(first: tuple[Tensor, ...] | None, second: tuple[Tensor, ...] | None) -> bool:
    return first is None or second is None or all(map(equal, first, second))


def once_within(tensor: Tensor, size: int) -> int:
    """Number of neighbours below `size` that are all different, unlikely by chance; 0 if there is
    none.

    It is the whole operand or a row of its last dimension.
    """
    for width in dict.fromkeys((tensor.numel(), tensor.shape[-1])):
        rows = tensor.reshape(-1, width)
        if width <= size and not bool((rows.sort(-1).values.diff(dim=-1) == 0).any()):
            chance = rows.shape[0] * sum(math.log1p(-number / size) for number in range(width))
            return width if chance < math.log(UNLIKELY) else 0
    return 0


def order_shows(
    answer: Callable[[Sequence[Tensor]], Answer], example: Sequence[Tensor], position: int
) -> bool:
    """Whether the answer depends on the order of two equal numbers at `position`.

    `answer` returns None for refused operands.
    """
    numbers = example[position].clone(memory_format=torch.contiguous_format)
    length = numbers.shape[-1]
    numbers[..., 1::2] = numbers[..., 0 : length - length % 2 : 2]
    paired = [*example[:position], numbers, *example[position + 1 :]]
    usual = answer(paired)
    if usual is None:
        return False
    axes = [
        [None, *(axis for axis, size in enumerate(operand.shape) if size == length)]
        for operand in paired
    ]
    axes[position] = [numbers.dim() - 1]
    for order in itertools.islice(itertools.product(*axes), MOST_TRIED):
        pairs = zip(paired, order, strict=True)
        found = answer([one if axis is None else one.flip(axis) for one, axis in pairs])
        if found is not None and all(map(_alike, found, usual, itertools.repeat(length))):
            return False
    return True


def _alike(new: Tensor, old: Tensor, length: int) -> bool:
    """Whether both are equal where finite, or one is the other reversed along a dimension."""
    if new.shape != old.shape:
        return False
    before, after = (tensor.double().nan_to_num(0.0, 0.0, 0.0) for tensor in (old, new))
    turned = [after, *(after.flip(axis) for axis, size in enumerate(new.shape) if size == length)]
    return any(float((one - before).norm()) <= CLOSE * float(before.norm()) for one in turned)
