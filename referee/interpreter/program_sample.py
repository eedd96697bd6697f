"""A sample of the programs of a launch that is too large to interpret: ends, middle and secret
ones.

Axes of equal length get the same sample, so that a second launch continues from the results of the
first. Limits: errors of programs outside the sample stay unseen. A program ends without a verdict
where it reads data that a skipped program may have written.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

FIRST, LAST = 3, 2
MAX_SAMPLED = 96
"""Maximum number of sampled programs of a launch; along three long axes only the ends remain."""


class DependsOnSkippedProgram(Exception):
    """A program reads memory that a skipped program of an earlier launch may write."""


def sample_programs(grid: tuple[int, int, int], seed: int) -> Iterator[tuple[int, ...]]:
    """The programs to run, in order; all programs of a small grid."""
    axes = [_some(size, seed) for size in grid]
    while len(axes[0]) * len(axes[1]) * len(axes[2]) > MAX_SAMPLED:
        longest = max(axes, key=len)
        longest.pop(len(longest) // 2)
    return itertools.product(*axes)


def _some(size: int, seed: int) -> list[int]:
    middle = size // 2
    secret = random.Random(f"{seed} {size}").sample(range(size), min(size, 3))
    wanted = {*range(FIRST), *range(size - LAST, size), middle, middle + 1, *secret}
    return sorted(number for number in wanted if 0 <= number < size)
