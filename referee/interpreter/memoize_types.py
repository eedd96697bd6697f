"""Memoizes block types, tensor shapes and constants that Triton's interpreter makes anew at each
step.

They take longer than the computation of a small block. Nothing here changes a kernel's results.
Limits: the caches never shrink, so the worker must end with its job. Runs in the interpreter
worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic

_BARE = frozenset(
    {bool, int, float, str, type(None), tl.tensor, tl.dtype, tl.block_type, tl.pointer_type}
)
"""Types that are no constants and contain none; they are the most frequent ones."""
_ITS_OWN = frozenset({"handle", "type", "dtype"})
"""Attributes of a tensor that differ between tensors of one shape."""


def patch() -> None:
    """Patches triton.language permanently. Call it once per process."""
    unwrap, same, broadcast = (
        core._unwrap_if_constexpr,
        tl.dtype.__eq__,
        TritonSemantic.broadcast_impl_value,
    )
    make_block, make_tensor = tl.block_type.__init__, tl.tensor.__init__
    blocks: dict[tuple[str, int, tuple[int, ...]], dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], dict[str, Any]] = {}

    def unwrapped(value: Any) -> Any:
        if type(value) in _BARE:
            return value
        return value.value if type(value) is tl.constexpr else unwrap(value)

    def block(self: Any, element_ty: Any, shape: Sequence[Any]) -> None:
        key = (
            element_ty.name,
            getattr(element_ty, "address_space", 0),
            tuple(core._unwrap_shape(shape)),
        )
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    def tensor(self: Any, handle: Any, kind: Any) -> None:
        shape = kind.shape if kind.is_block() else ()
        if shape not in shapes:
            make_tensor(self, handle, kind)
            shapes[shape] = {
                name: value for name, value in vars(self).items() if name not in _ITS_OWN
            }
        vars(self).update(shapes[shape], handle=handle, type=kind, dtype=kind.scalar)

    def broadcast_unless_alike(self: Any, lhs: Any, rhs: Any) -> Any:
        # The original compares a tuple with a list, so it broadcasts blocks to the shape that they
        # already have.
        alike = lhs.type.is_block() and rhs.type.is_block() and lhs.type.shape == rhs.type.shape
        return (lhs, rhs) if alike else broadcast(self, lhs, rhs)

    core._unwrap_if_constexpr = unwrapped
    tl.dtype.__eq__ = lambda self, other: self is other or same(self, other)
    tl.block_type.__init__, tl.tensor.__init__ = block, tensor
    TritonSemantic.broadcast_impl_value = broadcast_unless_alike
