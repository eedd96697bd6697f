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


class _OtherWay(Mode):  # type: ignore[no-untyped-call]
    """Evaluates implementation-defined operations otherwise; `met` says whether any ran."""

    met = False

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        packet = function.overloadpacket
        if function in (_ATEN.topk.default, _ATEN.sort.default):
            self.met = True
            return _backwards(_ATEN.topk.default if packet is _ATEN.topk else None, args, kwargs)
        if function is _ATEN.sort.stable and not kwargs.get("stable"):
            self.met = True
            return _backwards(
                None, args, {key: value for key, value in kwargs.items() if key != "stable"}
            )
        found = function(*args, **kwargs)
        source = args[0] if packet is _ATEN._to_copy else args[1] if packet is _ATEN.copy_ else None
        if isinstance(source, Tensor) and (none := _without_room(source, found)) is not None:
            self.met = True
            other = torch.where(none, (found == 0).to(found.dtype), found)
            return found.copy_(other) if packet is _ATEN.copy_ else other
        return found


def _backwards(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """`function`, or a stable sort, on the reversed elements, with their original numbers."""
    names = ("self", "k", "dim", "largest", "sorted") if function else ("self", "dim", "descending")
    given = dict(zip(names, args, strict=False)) | kwargs
    values, dim = given.pop("self"), given.pop("dim", -1)
    if not values.dim():
        return values.clone(), torch.zeros_like(values, dtype=torch.int64)
    turned = values.flip(dim)
    if function:
        found, numbers = function(turned, given.pop("k"), dim, **given)
    else:
        found, numbers = torch.sort(turned, dim=dim, stable=True, **given)
    return found, values.shape[dim] - 1 - numbers


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


def is_implementation_defined(eager: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Whether a correct kernel may give another answer.

    True as well if `eager` fails on the other way. Other errors of `eager` are raised.
    """
    mode = _OtherWay()  # type: ignore[no-untyped-call]
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
