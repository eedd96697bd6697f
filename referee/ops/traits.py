"""Traits of a user's reference, found by running it. For catalogue operations, the name decides
them.

Limits: the traits hold for one draw of values. A reference that mixes columns only for other values
gets narrow budgets there. One that computes the functions below in its own code gets no allowance
for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from referee.ops.torch_compat import Mode, as_tuple, computable

_CANCELLING = frozenset(
    "tanh elu gelu softplus mish expm1 log1p log_sigmoid log_sigmoid_forward logaddexp binary_cross_entropy_with_logits".split()
)
_PROBABILITIES = frozenset({"_softmax", "_log_softmax", "_safe_softmax"})


@dataclass(frozen=True)
class Traits:
    """`cancelling`: it calls a function whose usual forms subtract numbers near one.
    `probabilities`: it calls a softmax.

    `mixes`: for each output, whether an element depends on other columns than its own; empty if
    unknown.
    """

    cancelling: bool = False
    probabilities: bool = False
    mixes: tuple[bool, ...] = ()

    def alone(self, output: int) -> bool:
        """Whether every element of this output depends on its own column only."""
        return bool(self.mixes) and not self.mixes[output]


class _Called(Mode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self.names.add(str(func).removeprefix("aten.").partition(".")[0].removesuffix("_"))
        return func(*args, **kwargs)


def traits_of(
    eager: Callable[..., Any], oracle: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> Traits:
    """The traits of a reference, found at these inputs."""
    with _Called() as called:
        eager(*inputs)
    return Traits(
        bool(called.names & _CANCELLING),
        bool(called.names & _PROBABILITIES),
        _mixes(oracle, inputs),
    )


def _mixes(oracle: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[bool, ...]:
    before = as_tuple(oracle(*inputs))
    found = [not _has_columns(output) for output in before]
    moved = [
        number
        for number, tensor in enumerate(inputs)
        if tensor.is_floating_point() and tensor.dim() and tensor.numel()
    ]
    for number in moved:
        width = inputs[number].shape[-1]
        for column in {0, width // 2, width - 1}:
            # The oracle widens its inputs.
            changed = computable(inputs[number]).clone()
            changed[..., column] = changed[..., column] * 1.5 + 1.0
            try:
                after = as_tuple(oracle(*inputs[:number], changed, *inputs[number + 1 :]))
            except Exception:
                # The reference does not take such values, so nothing is known.
                return ()
            if [old.shape for old in before] != [new.shape for new in after]:
                return ()
            for index, (old, new) in enumerate(zip(before, after, strict=True)):
                found[index] = (
                    found[index] or old.shape[-1] != width or _elsewhere(old, new, column)
                )
    return tuple(found)


def _elsewhere(old: Tensor, new: Tensor, column: int) -> bool:
    same = (old == new) | (old.isnan() & new.isnan())
    same[..., column] = True
    return not bool(same.all())


def _has_columns(output: Tensor) -> bool:
    return output.dim() > 1 and output.shape[-1] > 1
