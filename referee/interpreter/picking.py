"""A few programs of a launch that has too many for an interpreter: those at both ends and in the middle, neighbours, and secret ones.

Along every axis of the grid the same ones are taken wherever an axis is as long, so that a second launch goes on from what the first one
made. Limits: what only programs do that are not taken nobody sees here; and a program that reads what one of an earlier launch may have
been to write ends there, and nothing is said of the rest of it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

FIRST, LAST = 3, 2
MOST = 96
"""So many programs of a launch at most: along three long axes only the ends are taken."""


class NotRun(Exception):
    """A program reads what an earlier launch may write, of which not all programs ran."""


def picked(grid: tuple[int, int, int], seed: int) -> Iterator[tuple[int, ...]]:
    """The programs to run, in order; all of them where they are few."""
    axes = [_some(size, seed) for size in grid]
    while len(axes[0]) * len(axes[1]) * len(axes[2]) > MOST:
        longest = max(axes, key=len)
        longest.pop(len(longest) // 2)
    return itertools.product(*axes)


def _some(size: int, seed: int) -> list[int]:
    middle = size // 2
    secret = random.Random(f"{seed} {size}").sample(range(size), min(size, 3))
    wanted = {*range(FIRST), *range(size - LAST, size), middle, middle + 1, *secret}
    return sorted(number for number in wanted if 0 <= number < size)
