"""What torch leaves open in a reference's answer: casts of floats that an integer type has no room for, and the order of equal values.

A cast of NaN, of infinity or of a number out of range gives what the processor gives; `topk` and an unstable `sort` number equal values
in any order. A kernel that does either in another way is as right. Limits: only these are known, as torch's own functions; what a
reference finds out by other means (`argmax` of equal values is documented as the first) is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten


class _OtherWay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Evaluates what is left open in another way than torch does here; `met` says whether there was anything of the kind."""

    met = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Evaluate one operation."""
        kwargs = kwargs or {}
        packet = function.overloadpacket
        if function in (_ATEN.topk.default, _ATEN.sort.default):
            self.met = True
            return _backwards(_ATEN.topk.default if packet is _ATEN.topk else None, args, kwargs)
        if function is _ATEN.sort.stable and not kwargs.get("stable"):
            self.met = True
            return _backwards(None, args, {key: value for key, value in kwargs.items() if key != "stable"})
        found = function(*args, **kwargs)
        source = args[0] if packet is _ATEN._to_copy else args[1] if packet is _ATEN.copy_ else None
        if isinstance(source, Tensor) and (none := _without_room(source, found)) is not None:
            self.met = True
            other = torch.where(none, (found == 0).to(found.dtype), found)
            return found.copy_(other) if packet is _ATEN.copy_ else other
        return found


def _backwards(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """`function`, or a stable sort, of the elements in the opposite order, numbered as they were."""
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
    """Where floats became integers that they have no room in; None where none did."""
    if not floats.is_floating_point() or integers.is_floating_point() or integers.is_complex() or integers.dtype == torch.bool:
        return None
    room, whole = torch.iinfo(integers.dtype), floats.double().trunc()
    none = ~((whole >= room.min) & (whole <= room.max))
    return none.expand(integers.shape) if bool(none.any()) else None


def is_left_open(eager: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Whether a right kernel may answer something else, be it that `eager` then fails. What it raises without that is raised."""
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
    both = [one if isinstance(one, tuple) else (one,) for one in (eager(*inputs), other)]
    return not all(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(*both, strict=True))
