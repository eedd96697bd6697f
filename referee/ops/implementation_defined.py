"""Finds implementation-defined answers of a reference: float-to-integer casts out of range, and the
order of equal values.

A cast of NaN, infinity or a number out of range depends on the processor. `topk` and an unstable
`sort` may number equal values in any order. A kernel with another result is as correct. Limits:
only torch's own functions are known. Documented choices, such as `argmax` of equal values, are not
implementation-defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from referee.ops.torch_compat import Mode, as_tuple, computable

_ATEN = torch.ops.aten


class _OtherWay(Mode):
    """Evaluates implementation-defined operations otherwise; `met` says whether any ran."""

    def __init__(self, *, backwards: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.met, self._backwards = False, backwards

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        packet = function.overloadpacket
        stable = function is _ATEN.sort.stable and kwargs.get("stable")
        if packet in (_ATEN.topk, _ATEN.sort) and not stable:
            self.met = True
            topk = packet is _ATEN.topk
            return _ordered(args, kwargs, topk=topk, backwards=self._backwards)
        found = function(*args, **kwargs)
        source = args[0] if packet is _ATEN._to_copy else args[1] if packet is _ATEN.copy_ else None
        if isinstance(source, Tensor) and (none := _without_room(source, found)) is not None:
            self.met = True
            other = torch.where(none, (found == 0).to(found.dtype), found)
            return found.copy_(other) if packet is _ATEN.copy_ else other
        return found


def _ordered(
    args: Sequence[Any], kwargs: dict[str, Any], *, topk: bool, backwards: bool
) -> tuple[Tensor, Tensor]:
    """A sort or `topk` that numbers equal values from the first on, or from the last on."""
    names = ("self", "k", "dim", "largest", "sorted") if topk else ("self", "dim", "descending")
    given = dict(zip(names, args, strict=False)) | kwargs
    values, dim = given["self"], given.get("dim", -1)
    if not values.dim():
        return values.clone(), torch.zeros_like(values, dtype=torch.int64)
    falling = given.get("largest", True) if topk else given.get("descending", False)
    turned = values.flip(dim) if backwards else values
    found, numbers = torch.sort(turned, dim=dim, stable=True, descending=falling)
    if topk:
        found, numbers = (one.narrow(dim, 0, given["k"]) for one in (found, numbers))
    return found, values.shape[dim] - 1 - numbers if backwards else numbers


def _without_room(floats: Tensor, integers: Tensor) -> Tensor | None:
    """A mask of the floats that the integer type cannot represent; None if all fit."""
    if (
        not floats.is_floating_point()
        or integers.is_floating_point()
        or integers.is_complex()
        or integers.dtype == torch.bool
    ):
        return None
    room, whole = torch.iinfo(integers.dtype), floats.double().trunc()
    none = ~((whole >= room.min) & (whole <= room.max))
    return none.expand(integers.shape) if bool(none.any()) else None


def other_ways(function: Callable[..., Any], inputs: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """The outputs with equal values numbered from the first on, and from the last on.

    Casts out of range are done otherwise in both. The list is empty if the function has no
    implementation-defined operation. Raises the errors of `function`.
    """
    found = []
    for backwards in (False, True):
        mode = _OtherWay(backwards=backwards)
        with mode:
            outputs = as_tuple(function(*inputs))
        if not mode.met:
            return []
        found.append(outputs)
    return found


def is_implementation_defined(eager: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Whether a correct kernel may give another answer.

    True as well if `eager` fails on the other way. Other errors of `eager` are raised.
    """
    mode = _OtherWay()
    try:
        with mode:
            other = eager(*inputs)
    except Exception:
        if mode.met:
            return True
        raise
    if not mode.met:
        return False
    both = map(as_tuple, (eager(*inputs), other))
    return not all(
        torch.equal(*(torch.nan_to_num(computable(one)) for one in (a, b)))
        for a, b in zip(*both, strict=True)
    )
