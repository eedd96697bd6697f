"""The times of a contest's rounds so far, block by block, and their statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from referee.timing import stats
from referee.timing.decision import SETTLED, enough
from referee.timing.measurement import CANDIDATE, TimingOptions
from referee.timing.nvml import Sample
from referee.timing.stats import Floats, Interval, Resampled


@dataclass
class Record:
    """The results of the blocks so far."""

    warm_up: dict[str, Floats] = field(default_factory=dict)
    blocks: list[dict[str, Floats]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[str, int], Resampled] = field(default_factory=dict)

    def drop(self, why: str, rounds: int) -> None:
        """Counts rounds that do not count."""
        self.dropped[why] = self.dropped.get(why, 0) + rounds

    @property
    def rounds(self) -> int:
        """Number of rounds of all blocks that count."""
        return sum(block[CANDIDATE].size for block in self.blocks)

    def times(self, name: str) -> Floats:
        """Microseconds of every round of the blocks with `name`; NaN for a lost one."""
        found = [block[name] for block in self.blocks if name in block]
        return np.concatenate(found) if found else np.empty(0)

    def median(self, name: str) -> float:
        """The median of the blocks that count, or of the warm-up before the first one."""
        times = self.times(name) if self.blocks else self.warm_up.get(name, np.empty(0))
        usable = times[np.isfinite(times)]
        return float(np.median(usable)) if usable.size else float("inf")

    def log_ratios(self, other: str) -> tuple[Floats, ...]:
        """The log-ratios of every block with `other`."""
        shared = [block for block in self.blocks if other in block]
        return stats.log_ratios(
            [block[CANDIDATE] for block in shared], [block[other] for block in shared]
        )

    def location(self, other: str) -> float:
        """The logarithm of the speed ratio to `other`; infinite without a usable round."""
        found = stats.location(self.log_ratios(other))
        return found if math.isfinite(found) else math.inf

    def ratio(self, other: str, confidence: float = 0.95) -> Interval:
        """The candidate's speed ratio to `other`."""
        asked = (other, len(self.blocks))
        if asked not in self.known:
            self.known[asked] = stats.resample(self.log_ratios(other))
        return self.known[asked].interval(confidence)

    def enough(self, bar: str, options: TimingOptions) -> bool:
        """Whether measuring may stop now, with `bar` as the deciding baseline."""
        return self.rounds >= options.least_rounds and enough(
            self.ratio(bar), self.ratio(bar, SETTLED), options
        )
