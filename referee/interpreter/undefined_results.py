"""Operations whose results are undefined for some operands, and the tests for those operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Undefined = Callable[[Array, Array, int], Array]


def _no_quotient(left: Array, right: Array, width: int) -> Array:
    overflows = (
        (right == -1) & (left == np.iinfo(left.dtype).min) if right.dtype.kind == "i" else False
    )
    return np.asarray((right == 0) | overflows)


def _no_shift(left: Array, right: Array, width: int) -> Array:
    return np.asarray((right < 0) | (right >= width))


UNDEFINED: dict[str, Undefined] = {
    **dict.fromkeys(("idiv", "srem", "urem"), _no_quotient),
    **dict.fromkeys(("shl", "lshr", "ashr"), _no_shift),
}
"""Integer operations with a test for undefined results: both operands and the width in bits."""


def check_indices(indices: Array, size: int, word: str) -> None:
    """Raises IndexError for an index outside the range; `word` names the operation."""
    if (outside := (indices < 0) | (indices >= size)).any():
        raise IndexError(
            f"{word} has {size} places, and place "
            f"{int(indices[outside].reshape(-1)[0])} is outside of them"
        )
