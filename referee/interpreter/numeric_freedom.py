"""Results that a compiler or a device may choose, and the choice that the interpreter makes in a
run.

A kernel is right only if it is right under every choice. Runs in the interpreter worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class NumericFreedom:
    """The choices of the running plan.

    `relaxed` contracts products into fused multiply-adds and reassociates reductions.
    `second_order` says that this run repeats another one and must give the same bits; undetermined
    integers then get different bits.
    """

    relaxed: bool = False
    second_order: bool = False
    left_open: int = 0
    """Number of operations so far that gave an undetermined result."""

    def undetermined(self, found: Array, where: Array, *, known: bool = False) -> Array:
        """`found` with arbitrary bits where the mask `where` is true; `found` holds integers or
        booleans.

        `known` results change only in a `second_order` run. The first run sets all bits. The second
        one cycles through no bit, the highest bit, every other bit, and all but the highest. A
        result that depends on them is wrong or differs between the two runs.
        """
        self.left_open += 1
        if known and not self.second_order:
            return found
        unsigned = np.dtype(f"u{found.dtype.itemsize}")
        most, bits = np.iinfo(unsigned).max, 8 * unsigned.itemsize
        values = np.array(
            [0, 1 << bits - 1, most // 3, most >> 1] if self.second_order else [most], unsigned
        )
        made = values[(np.arange(found.size) + self.left_open) % len(values)].reshape(found.shape)
        return np.where(
            where, made.astype(bool) if found.dtype == np.bool_ else made.view(found.dtype), found
        )
