"""What Triton's types, tensors and operators are before and after `memoize_types.patch`, as text. Run
in the sandbox.
"""

import itertools
import json

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
from triton.language import core

from referee.interpreter import memoize_types

POINTERS = [
    tl.pointer_type(tl.float32),
    tl.pointer_type(tl.float32, 3),
    tl.pointer_type(tl.float32, 1, True),
    tl.pointer_type(tl.int8),
]
KINDS = [tl.float32, tl.bfloat16, tl.int1, tl.uint8, *POINTERS]
SHAPES = [[1], [4], [2, 8], [tl.constexpr(4), tl.constexpr(2)], [8, 2], [tl.constexpr(8), 2]]
CONSTANTS = [
    tl.constexpr(3),
    (tl.constexpr(3), 4),
    [tl.constexpr((1, 2))],
    tl.tuple([tl.constexpr(5)]),
]
VALUES = [*CONSTANTS, 3, 2.5, "word", None, True, tl.float32]


def described(thing: object) -> dict[str, str]:
    return {name: f"{type(value).__name__} {value}" for name, value in vars(thing).items()}


def everything() -> list[object]:
    """All of it, each kind twice: what is made anew, and what was made before."""
    blocks = [tl.block_type(kind, shape) for kind, shape in itertools.product(KINDS, SHAPES)]
    kinds = [*KINDS, *blocks]
    found: list[object] = [
        [described(block), str(block), block.numel, hash(str(block.scalar))] for block in blocks
    ]
    found += [described(tl.tensor("handle", kind)) for kind in kinds]
    found += [
        [str(left == right) for left in kinds]
        for right in [*kinds, "word", tl.constexpr(tl.float32)]
    ]
    found += [f"{core._unwrap_if_constexpr(value)}" for value in VALUES]
    return found


def broadcast() -> list[object]:
    """Shapes and values of pairs brought to one shape."""
    semantic, shapes = triton_interpreter.interpreter_semantic, [(), (4,), (1, 4), (2, 4), (2, 1)]
    tensors = []
    for shape in shapes:
        data = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape or (1,))
        kind = tl.block_type(tl.float32, list(shape)) if shape else tl.float32
        tensors.append(tl.tensor(triton_interpreter.TensorHandle(data, tl.float32), kind))
    # Where neither is a scalar Triton 3.7 wants as many axes of both.
    pairs = [
        (left, right)
        for left, right in itertools.product(tensors, repeat=2)
        if len({len(left.shape), len(right.shape)} - {0}) < 2
    ]
    return [
        [[str(one.type), one.handle.data.tolist()] for one in semantic.broadcast_impl_value(*pair)]
        for pair in pairs
    ]


def compared(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """What it is before, and twice after."""
    before = [everything(), broadcast()]
    memoize_types.patch()
    return json.dumps([before, [everything(), broadcast()], [everything(), broadcast()]]).encode()
