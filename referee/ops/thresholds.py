"""The numbers that a reference compares its inputs themselves with, and the reference with such a comparison the other way at equality.

Only comparisons with a number that is no tensor are seen, and inputs count as given, viewed otherwise, copied or converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

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
    """An input, by its position, is compared with this number."""

    position: int
    number: float


def thresholds_of(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Threshold, ...]:
    """Those where the function's answers jump: where it matters to which side an input that is equal to the number belongs."""
    with _Compared(inputs) as compared:
        function(*inputs)
    return tuple(threshold for threshold in dict.fromkeys(compared.seen) if _jumps(function, inputs, threshold))


def numbers_to_meet(function: Callable[..., Any], inputs: Sequence[Tensor]) -> dict[int, tuple[float, ...]]:
    """The numbers that each input is to be equal to somewhere, by its position: none where no answer jumps at any of them.

    Only those that the input's dtype has: others are never met. At those where no answer jumps nothing is found, nor lost.
    """
    with _Compared(inputs) as compared:
        function(*inputs)
    known = [one for one in dict.fromkeys(compared.seen) if _is_exact(one.number, inputs[one.position].dtype)]
    # A reference of many numbers may be slow: the first that matters is enough to know.
    if not any(_jumps(function, inputs, threshold) for threshold in known):
        return {}
    numbers = {position: [one.number for one in known if one.position == position] for position in {one.position for one in known}}
    return {position: tuple(found[:MOST_MET]) for position, found in numbers.items()}


def _is_exact(number: float, dtype: torch.dtype) -> bool:
    return isfinite(number) and float(torch.tensor(number, dtype=torch.float64).to(dtype)) == number


def other_way(function: Callable[..., Any], inputs: Sequence[Tensor], threshold: Threshold) -> tuple[Tensor, ...]:
    """The outputs for these inputs where equality with the threshold's number counts for the other side."""
    with _Compared(inputs, threshold):
        return _tuple(function(*inputs))


def _jumps(function: Callable[..., Any], inputs: Sequence[Tensor], threshold: Threshold) -> bool:
    at = list(inputs)
    at[threshold.position] = torch.full_like(inputs[threshold.position], threshold.number)
    try:
        one, other = _tuple(function(*at)), other_way(function, at, threshold)
    except Exception:
        # It takes no such values.
        return False
    return not all(torch.equal(own.nan_to_num(), turned.nan_to_num()) for own, turned in zip(one, other, strict=True))


class _Compared(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, inputs: Sequence[Tensor], turned: Threshold | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Threshold] = []
        self._turned = turned
        self._position: Any = WeakTensorKeyDictionary()
        for position, tensor in enumerate(inputs):
            if tensor.is_floating_point():
                self._position[tensor] = position

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        position = self._position.get(args[0]) if args and isinstance(args[0], Tensor) else None
        if position is not None and func in _OTHER_WAY:
            found = Threshold(position, float(args[1]))
            self.seen.append(found)
            func = _OTHER_WAY[func] if found == self._turned else func
        result = func(*args, **(kwargs or {}))
        written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)] if position is not None else []
        if func._schema.is_mutable:
            for tensor in written:
                self._position.pop(tensor, None)
        elif str(func).removeprefix("aten.").partition(".")[0] in _SAME:
            self._position.update((tensor, position) for tensor in written if tensor.is_floating_point())
        return result


def _tuple(result: Any) -> tuple[Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
