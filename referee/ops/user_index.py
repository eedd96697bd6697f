"""Integers of a user's reference that number the rows of something: labels, token ids, segments, positions in a table.

An example of few labels shows neither the first class nor the last one, at which wrong kernels are found. Whether an operand numbers
something is seen by trying: the size of some dimension that is larger than all its numbers, the smallest such size, is refused in it, and
one less is not, in any of its places. Limits: the dimension must be one of another operand or of an output; operands of one or two
elements, and numbers of one bit, are as in the example; so are numbers below zero, such as those that are to be ignored, as long as they
are few.
Nothing is tried of a reference that works on a device of its own: there a number too large would end the process's use of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from referee.ops.user_distinct import once_within, order_shows

FEWEST, MASKED, MOST_BELOW, MOST_SIZES = 3, 2, 4, 6
PIECE, MOST_NEGATIVE = 1 << 12, 1 << 20


class _OnCpuOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises RuntimeError where a tensor is elsewhere."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Evaluate one operation and look at what it is given and gives."""
        found = function(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.device.type != "cpu" for leaf in tree_leaves((args, kwargs, found))):
            raise RuntimeError("a tensor is on another device")
        return found


class _Tried:
    """A reference with other numbers in one operand of an example."""

    def __init__(self, eager: Callable[..., Any], example: Sequence[Tensor], position: int) -> None:
        self._eager, self._example, self._position = eager, [operand.cpu() for operand in example], position

    def at_first(self, number: int) -> tuple[Tensor, ...] | None:
        """The answer where the first element is that number."""
        tried = self._example[self._position].clone(memory_format=torch.contiguous_format)
        tried.view(-1)[0] = number
        return self.of(tried)

    def of(self, tried: Tensor) -> tuple[Tensor, ...] | None:
        """The answer to these numbers; None where the reference refuses them."""
        return self.answer([*self._example[: self._position], tried, *self._example[self._position + 1 :]])

    def answer(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
        """The answer to these operands; None where the reference refuses them."""
        try:
            # Else torch reads wherever the columns of a sparse matrix say.
            with _OnCpuOnly(), torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
                found = self._eager(*(operand.cpu() for operand in operands))
        except Exception:
            return None
        return found if isinstance(found, tuple) else (found,)


def numbering(eager: Callable[..., Any], example: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], position: int) -> str:
    """The recipe for the operand at `position`, empty unless it numbers something. `shapes` are those of the outputs."""
    tensor = example[position]
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or tensor.numel() < FEWEST:
        return ""
    below = _below_zero(tensor)
    if below is None:
        return ""
    tried = _Tried(eager, example, position)
    for size in _sizes(example, shapes, position):
        # A number too large comes after one that is not, so what works on another device has been refused by then.
        last = tried.at_first(size - 1)
        if not _is_usual(last, shapes):
            continue
        if tried.at_first(size) is not None:
            # It numbers the rows of something larger, or of nothing.
            continue
        if not _takes_all(tried, tensor, size, shapes):
            return ""
        # Where rows are counted from one, none is the last one, from behind.
        from_one = int(tensor.min()) > 0 and _same(tried.at_first(0), last)
        if from_one:
            return ""
        once = 0 if below else once_within(tensor, size)
        if once and order_shows(tried.answer, example, position):
            return f"distinct:{size}:{once}"
        return ":".join(["index", str(size), *map(str, below)])
    return ""


def _sizes(example: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], position: int) -> list[int]:
    """How many rows there may be: the dimensions above all numbers, the smallest first, and those of the operand itself last."""
    tensor = example[position]
    # What numbers two rows is a mask too, and masks have rows of one value.
    least, most = max(int(tensor.max()), MASKED), torch.iinfo(tensor.dtype).max
    others = [other.shape for number, other in enumerate(example) if number != position]
    larger = {size for shape in (*others, *shapes) for size in shape if least < size <= most}
    return [*sorted(larger - set(tensor.shape)), *sorted(larger & set(tensor.shape))][:MOST_SIZES]


def _below_zero(tensor: Tensor) -> list[int] | None:
    """The different numbers below zero; None where there are more than a few."""
    found: set[int] = set()
    # Most tensors with many show it in any piece.
    for piece in (tensor.flatten()[:PIECE], tensor):
        negative = piece[piece < 0]
        if negative.numel() > MOST_NEGATIVE:
            return None
        found = set(negative.tolist())
        if len(found) > MOST_BELOW:
            return None
    return sorted(found)


def _takes_all(tried: _Tried, tensor: Tensor, size: int, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether all elements may be the first or the last of these numbers: the first element may have another limit than the rest."""
    return all(_is_usual(tried.of(torch.full_like(tensor, number, device="cpu")), shapes) for number in (0, size - 1))


def _is_usual(found: tuple[Tensor, ...] | None, shapes: Sequence[tuple[int, ...]]) -> bool:
    return found is not None and [tuple(out.shape) for out in found] == list(shapes)


def _same(first: tuple[Tensor, ...] | None, second: tuple[Tensor, ...] | None) -> bool:
    return first is None or second is None or all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
