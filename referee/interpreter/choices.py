"""What is left open to a compiler or a device, and which way the interpreter takes in a run.

A kernel is right only if it is right either way. Runs in the interpreter worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class Choices:
    """The running plan's. `relaxed`: a product is added unrounded, and what is combined is combined in a mixed order.

    `again`: this run repeats another, whose bits it must give, and integers that no rule determines have other bits here.
    """

    relaxed: bool = False
    again: bool = False
    left_open: int = 0
    """How often something was left open of what an operation gave."""

    def undetermined(self, found: Array, where: Array, *, known: bool = False) -> Array:
        """`found`, of integers or booleans, with bits that nothing determines `where` it is true; if `known`, only `again`.

        All bits set at first, and then none, the highest, every other and all but the highest, one after another: what depends on
        them is wrong, or shows as two runs that differ.
        """
        self.left_open += 1
        if known and not self.again:
            return found
        unsigned = np.dtype(f"u{found.dtype.itemsize}")
        most, bits = np.iinfo(unsigned).max, 8 * unsigned.itemsize
        values = np.array([0, 1 << bits - 1, most // 3, most >> 1] if self.again else [most], unsigned)
        made = values[(np.arange(found.size) + self.left_open) % len(values)].reshape(found.shape)
        return np.where(where, made.astype(bool) if found.dtype == np.bool_ else made.view(found.dtype), found)
