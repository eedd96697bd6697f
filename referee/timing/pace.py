"""Numbers of rounds: fewer for slow calls, and for baselines that cannot decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from referee.timing import stats
from referee.timing.measurement import (
    BARS,
    TimingOptions,
)

SLOW_CALL_US = 20_000.0
"""Microseconds from which a call is slow."""
SLOW_ROUNDS, SLOW_BLOCKS = 3, 4
"""Rounds per block and number of blocks for slow calls."""
FAR_OFF = 1.05
"""Multiple of the fastest baseline's time beyond which a baseline runs in few rounds."""
FEW, EVERY = 8, 4
"""Number of these rounds, and the period of their blocks."""
MUCH_SLOWER, FEWER = 2.0, 4
"""Multiple of the fastest baseline's time from which fewer rounds suffice, and these."""


def paced(options: TimingOptions, slow_us: float) -> TimingOptions:
    """The options for calls of this many microseconds: unchanged, or for few rounds."""
    if slow_us <= SLOW_CALL_US:
        return options
    rounds = SLOW_ROUNDS * SLOW_BLOCKS
    return replace(options, rounds=SLOW_ROUNDS, least_rounds=rounds, most_rounds=rounds)


def few(number: int, counted: int) -> int:
    """Number of rounds of block `number` for contestants that cannot decide.

    They take part until two blocks count, and then in every EVERY-th block.
    """
    return FEW if number % EVERY == 0 or counted < stats.LEAST_BLOCKS else 0


def shares(medians: Mapping[str, float], rounds: int, others: int) -> dict[str, int]:
    """Number of the `rounds` rounds in which each baseline takes part.

    A baseline near the fastest takes part in all. The rest takes part in `others` rounds, or in
    fewer if it is much slower. A baseline with slow calls takes part in the fewest usable ones.
    `medians` are the times so far in microseconds, infinite without one.
    """
    fastest = min((medians[name] for name in BARS if name in medians), default=math.inf)

    def share(median: float) -> int:
        if median <= FAR_OFF * fastest:
            return rounds
        fewest = (
            stats.LEAST_ROUNDS
            if median > SLOW_CALL_US
            else FEWER
            if median > MUCH_SLOWER * fastest
            else others
        )
        return min(rounds, others, fewest if median < math.inf else others)

    return {name: some for name, median in medians.items() if (some := share(median))}
