"""What Triton's interpreter works out anew for every operation, worked out once: blocks' types, tensors' shapes, constants that are none.

These take it longer than the numbers of a small block. Nothing here changes what a kernel computes. Limits: what is remembered is never
given up, so this is for a worker that ends with its job. Runs in the interpreter worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic

_BARE = frozenset({bool, int, float, str, type(None), tl.tensor, tl.dtype, tl.block_type, tl.pointer_type})
"""What neither is a constant nor has any in it; nothing else comes as often."""
_ITS_OWN = frozenset({"handle", "type", "dtype"})
"""The attributes of a tensor that are not the same for all of its shape."""


def patch() -> None:
    """Patches triton.language for good, once per process."""
    unwrap, same, broadcast = core._unwrap_if_constexpr, tl.dtype.__eq__, TritonSemantic.broadcast_impl_value
    make_block, make_tensor = tl.block_type.__init__, tl.tensor.__init__
    blocks: dict[tuple[str, int, tuple[int, ...]], dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], dict[str, Any]] = {}

    def unwrapped(value: Any) -> Any:
        if type(value) in _BARE:
            return value
        return value.value if type(value) is tl.constexpr else unwrap(value)

    def block(self: Any, element_ty: Any, shape: Sequence[Any]) -> None:
        key = (element_ty.name, getattr(element_ty, "address_space", 0), tuple(core._unwrap_shape(shape)))
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    def tensor(self: Any, handle: Any, kind: Any) -> None:
        shape = kind.shape if kind.is_block() else ()
        if shape not in shapes:
            make_tensor(self, handle, kind)
            shapes[shape] = {name: value for name, value in vars(self).items() if name not in _ITS_OWN}
        vars(self).update(shapes[shape], handle=handle, type=kind, dtype=kind.scalar)

    def broadcast_unless_alike(self: Any, lhs: Any, rhs: Any) -> Any:
        # The original compares a tuple with a list, and so broadcasts blocks to the shape that they have.
        alike = lhs.type.is_block() and rhs.type.is_block() and lhs.type.shape == rhs.type.shape
        return (lhs, rhs) if alike else broadcast(self, lhs, rhs)

    core._unwrap_if_constexpr = unwrapped
    tl.dtype.__eq__ = lambda self, other: self is other or same(self, other)
    tl.block_type.__init__, tl.tensor.__init__ = block, tensor
    TritonSemantic.broadcast_impl_value = broadcast_unless_alike
