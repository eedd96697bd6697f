"""Evaluates a reference with every input moved by one fp32 rounding, which no algorithm can be expected
to distinguish. For float64 outputs it is one float64 rounding.

`perturbed` moves inputs. `moved_beside_steps` evaluates a reference at moved inputs while
comparisons of an input itself keep their results. `age >= 65` is exact in every dtype, so rounding
does not excuse an answer of the other side; `x / scale >= 65` is not exact. Views, copies,
conversions, negations and absolute values of an input count as the input. Comparisons with computed
numbers, steps of such numbers, and choices among inputs (sort, argmax) see the moved values. So do
comparisons of tensors written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from referee.ops.torch_compat import Mode

EPS32, EPS64 = 2.0**-23, 2.0**-52


def unit_of(dtype: torch.dtype) -> float:
    """The relative step of the arithmetic that an output of this dtype asks for: fp32 but for
    float64.
    """
    return EPS64 if dtype == torch.float64 else EPS32


@dataclass(frozen=True)
class Moves:
    """The way in which inputs move: up or down, except for masks.

    Inputs of one shape move alike or against each other, by half of `unit`.
    """

    masks: tuple[Tensor, ...]
    centred: bool
    paired: bool
    unit: float = EPS32


def perturbed(inputs: Sequence[Tensor], number: int, moves: Moves) -> list[Tensor]:
    """The inputs, some moved down by one rounding.

    Samples come in pairs; the second moves the elements that the first left. With several pairs,
    inputs of one shape move alike in every second pair and against each other in the rest.
    Independent moves could cancel in all samples, as in x + r - mean(x + r) for a row that is not
    saturated.
    """
    moved = []
    pair, second = divmod(number, 2)
    shapes: list[torch.Size] = []
    for position, tensor in enumerate(inputs):
        if not tensor.is_floating_point():
            moved.append(tensor)
            continue
        before = shapes.count(tensor.shape) if moves.paired else 0
        turned = second ^ (before % 2 if pair % 2 == 0 else 0)
        seed = pair + 1_000_003 * (shapes.index(tensor.shape) if before else len(shapes))
        shapes.append(tensor.shape)
        generator = torch.Generator(device=tensor.device).manual_seed(seed)
        lowered = torch.randint(
            0, 2, tensor.shape, generator=generator, device=tensor.device, dtype=torch.int8
        ).bitwise_xor_(turned)
        up, down = moves.unit / 2 if moves.centred else 0.0, moves.unit / 2
        found = lowered.double().mul_(-up - down).add_(1.0 + up).mul_(tensor.double())
        moved.append(
            torch.where(moves.masks[position], tensor.double(), found) if moves.masks else found
        )
    return moved


_STEPS = frozenset(
    "eq ne lt le gt ge floor ceil round trunc sign sgn signbit heaviside bucketize".split()
)
_MOVES = frozenset(
    "alias detach clone contiguous _to_copy lift_fresh view _unsafe_view reshape expand permute transpose t squeeze unsqueeze select slice "
    "unbind split split_with_sizes diagonal as_strided unfold cat stack flip roll repeat gather index index_select neg abs".split()
)


def moved_beside_steps(
    function: Callable[..., Any], given: Sequence[Tensor], moved: Sequence[Tensor]
) -> Any:
    """`function(*moved)`, where each comparison of an input itself has its result for `given`."""
    with _Unmoved(given, moved):
        return function(*moved)


class _Unmoved(Mode):
    """For each tensor that is a moved input the given one; None for tensors computed from moved
    inputs.
    """

    def __init__(self, given: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given: Any = WeakTensorKeyDictionary()
        for own, other in zip(given, moved, strict=True):
            if other.is_floating_point():
                self._given[other] = own.to(other.dtype)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        known = [
            leaf
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor) and leaf in self._given
        ]
        if not known:
            return result
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        name = _name(func)
        if func._schema.is_mutable:
            self._forget(outputs)
        elif name not in _STEPS | _MOVES or any(self._given[tensor] is None for tensor in known):
            self._given.update(dict.fromkeys(outputs))
        else:
            own = func(*tree_map(self._own, args), **tree_map(self._own, kwargs))
            if name in _STEPS or not outputs[0].is_floating_point():
                return own
            self._given.update(zip(outputs, tree_leaves(own), strict=True))
        return result

    def _own(self, leaf: Any) -> Any:
        return self._given.get(leaf, leaf) if isinstance(leaf, Tensor) else leaf

    def _forget(self, written: Sequence[Tensor]) -> None:
        places = {_place(tensor) for tensor in written}
        for tensor in list(self._given.keys()):
            if _place(tensor) in places:
                self._given[tensor] = None
        for tensor in written:
            self._given[tensor] = None


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _name(func: Any) -> str:
    """The operation's name without overload, except for a rounding to decimals, which divides."""
    name, _, overload = str(func).removeprefix("aten.").partition(".")
    return name if overload != "decimals" else "decimals"
