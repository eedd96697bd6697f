"""Which redrawn values say nothing about a kernel by a user's reference, because right ones are wrong there too.

Limits: of the usual forms of a function only those of softmax are tried; of the others `traits.py` knows the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from referee.ops.traits import traits_of

LEAST_ACCURACY = 2.0**-12

Function = Callable[..., Any]


def is_accurate(eager: Function, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    """Whether fp32 arithmetic knows the answers at tiny inputs: else no budget says how far off a right kernel may be.

    A reference that subtracts numbers near one gets them wrong, and so may a kernel where it calls a function whose usual forms do.
    """
    # A function of no inputs: what it calls is asked for, not which columns it mixes.
    cancelling = traits_of(lambda: eager(*inputs), tuple, ()).cancelling
    return not cancelling and _are_close(eager(*_single(inputs)), exact)


def is_right_by_logits(eager: Function, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    """Whether a softmax may be computed as exp(z - log(sum(exp(z)))) in fp32.

    Where a mask fills in a large number and a row has nothing else, the logarithm is lost and every probability is one.
    """
    with _ByLogits():  # type: ignore[no-untyped-call]
        found = eager(*_single(inputs))
    return _are_close(found, exact)


class _ByLogits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func)
        if name not in ("aten._softmax.default", "aten._log_softmax.default"):
            return func(*args, **(kwargs or {}))
        logits, dimension = args[:2]
        logarithm = logits - torch.logsumexp(logits, dimension, keepdim=True)
        return logarithm if "log" in name else torch.exp(logarithm)


def _single(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]


def _are_close(found: Tensor | tuple[Tensor, ...], exact: Sequence[Tensor]) -> bool:
    """Whether floating answers differ from the exact ones by little of the largest; what is not finite is nothing to compare."""
    for out, want in zip(found if isinstance(found, tuple) else (found,), exact, strict=True):
        if want.is_floating_point() and want.numel():
            difference = (out.double() - want).abs().nan_to_num(posinf=0.0)
            if not bool(difference.max() <= LEAST_ACCURACY * want.abs().nan_to_num(posinf=0.0).max()):
                return False
    return True
