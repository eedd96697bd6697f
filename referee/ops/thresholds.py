"""Finds the numbers that a reference compares its inputs with, and evaluates it with such a
comparison changed at equality.

Limits: only comparisons of an input with a plain number are seen. Views, copies and conversions of
an input count as the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from referee.ops.torch_compat import Mode, as_tuple, computable

_SAME = frozenset(
    "alias detach clone contiguous _to_copy view _unsafe_view reshape expand permute transpose t squeeze unsqueeze select slice unbind "
    "split split_with_sizes".split()
)
_OTHER_WAY = {
    torch.ops.aten.lt.Scalar: torch.ops.aten.le.Scalar,
    torch.ops.aten.le.Scalar: torch.ops.aten.lt.Scalar,
    torch.ops.aten.gt.Scalar: torch.ops.aten.ge.Scalar,
    torch.ops.aten.ge.Scalar: torch.ops.aten.gt.Scalar,
}

MOST_MET = 64


@dataclass(frozen=True)
class Threshold:
    """The input at this position is compared with this number."""

    position: int
    number: float


def thresholds_of(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Threshold, ...]:
    """Thresholds at which the function's answers jump, so that equality matters."""
    with _Compared(inputs) as compared:
        function(*inputs)
    return tuple(
        threshold
        for threshold in dict.fromkeys(compared.seen)
        if _jumps(function, inputs, threshold)
    )


def numbers_to_meet(
    function: Callable[..., Any], inputs: Sequence[Tensor]
) -> dict[int, tuple[float, ...]]:
    """Numbers that each input should equal somewhere, by position; {} if no answer jumps at any.

    Numbers that the input's dtype cannot represent are left out.
    """
    with _Compared(inputs) as compared:
        function(*inputs)
    known = [
        one
        for one in dict.fromkeys(compared.seen)
        if _is_exact(one.number, inputs[one.position].dtype)
    ]
    # A reference with many numbers may be slow; the first jump is enough.
    if not any(_jumps(function, inputs, threshold) for threshold in known):
        return {}
    numbers = {
        position: [one.number for one in known if one.position == position]
        for position in {one.position for one in known}
    }
    return {position: tuple(found[:MOST_MET]) for position, found in numbers.items()}


def _is_exact(number: float, dtype: torch.dtype) -> bool:
    return isfinite(number) and float(torch.tensor(number, dtype=torch.float64).to(dtype)) == number


def other_way(
    function: Callable[..., Any], inputs: Sequence[Tensor], threshold: Threshold
) -> tuple[Tensor, ...]:
    """The outputs if equality with the threshold counts for the other side."""
    with _Compared(inputs, threshold):
        return as_tuple(function(*inputs))


def _jumps(function: Callable[..., Any], inputs: Sequence[Tensor], threshold: Threshold) -> bool:
    at = list(inputs)
    at[threshold.position] = torch.full_like(inputs[threshold.position], threshold.number)
    try:
        one, other = as_tuple(function(*at)), other_way(function, at, threshold)
    except Exception:
        # The function does not take such values.
        return False
    return not all(
        torch.equal(*(computable(each).nan_to_num() for each in (own, turned)))
        for own, turned in zip(one, other, strict=True)
    )


class _Compared(Mode):
    def __init__(self, inputs: Sequence[Tensor], turned: Threshold | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Threshold] = []
        self._turned = turned
        self._position: Any = WeakTensorKeyDictionary()
        for position, tensor in enumerate(inputs):
            if tensor.is_floating_point():
                self._position[tensor] = position

    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        position = self._position.get(args[0]) if args and isinstance(args[0], Tensor) else None
        if position is not None and func in _OTHER_WAY:
            found = Threshold(position, float(args[1]))
            self.seen.append(found)
            func = _OTHER_WAY[func] if found == self._turned else func
        result = func(*args, **kwargs)
        written = (
            [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            if position is not None
            else []
        )
        if func._schema.is_mutable:
            for tensor in written:
                self._position.pop(tensor, None)
        elif str(func).removeprefix("aten.").partition(".")[0] in _SAME:
            self._position.update(
                (tensor, position) for tensor in written if tensor.is_floating_point()
            )
        return result
