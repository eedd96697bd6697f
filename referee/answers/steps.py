"""A reference at inputs that are moved a little, where what it compares an input itself with stays on its side.

`age >= 65` is exact in every dtype, so that no rounding excuses an answer of the other side; `x / scale >= 65` is not. Inputs count as
they are given, moved about, copied, converted, negated, or without their sign. A comparison with anything computed from inputs, a step of
such a number, and all that chooses among inputs (sort, argmax) see the moved values. So do comparisons of what was written into in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

_STEPS = frozenset("eq ne lt le gt ge floor ceil round trunc sign sgn signbit heaviside bucketize".split())
_MOVES = frozenset(
    "alias detach clone contiguous _to_copy lift_fresh view _unsafe_view reshape expand permute transpose t squeeze unsqueeze select slice "
    "unbind split split_with_sizes diagonal as_strided unfold cat stack flip roll repeat gather index index_select neg abs".split()
)


def moved_beside_steps(function: Callable[..., Any], given: Sequence[Tensor], moved: Sequence[Tensor]) -> Any:
    """`function(*moved)`, where each comparison of an input itself gives what it gives for `given`."""
    with _Unmoved(given, moved):
        return function(*moved)


class _Unmoved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Beside each tensor that is a moved input it has the one that was given, and None for what is computed from moved inputs."""

    def __init__(self, given: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given: Any = WeakTensorKeyDictionary()
        for own, other in zip(given, moved, strict=True):
            if other.is_floating_point():
                self._given[other] = own.to(other.dtype)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        known = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf in self._given]
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
    """Without its overload, but for a rounding to decimals, which divides."""
    name, _, overload = str(func).removeprefix("aten.").partition(".")
    return name if overload != "decimals" else "decimals"
