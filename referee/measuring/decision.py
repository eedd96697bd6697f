"""What a measured ratio lets one say, and when it is known well enough to stop measuring."""

from __future__ import annotations

import math
from collections.abc import Mapping

from referee.measuring import stats
from referee.measuring.measurement import BARS, TimingOptions
from referee.measuring.stats import Interval

SETTLED = 0.99  # confidence at which measuring may stop early
NEAR = 0.7  # of half the width that the interval would have in the end
LATE = 0.8  # of the most rounds: earlier, a twin lies on a border by chance often enough to show among twenty repeats
USABLE = 0.9  # of the least rounds must have given a time of both: a lost one costs no further block


def decided(ratio: Interval | None, bar: str | None, missing: Mapping[str, str]) -> tuple[stats.Decision, str]:
    """The decision and, where it is not plain from the figures, its reason. `missing` says why a baseline has no time.

    The baseline that is missing may have been the fastest: without it nothing is a win.
    """
    if bar is None or ratio is None:
        return "unsure", "no baseline could be built" if bar is None and missing else "no block of rounds was usable"
    decision = stats.decide(ratio)
    absent = [name for name in BARS if name in missing]
    if decision == "win" and absent:
        why = "; ".join(f"{name}: {missing[name]}" for name in absent)
        return "unsure", f"faster than {bar}, but not every baseline could be timed ({why})"
    return decision, ""


def enough(ratio: Interval, settled: Interval, options: TimingOptions) -> bool:
    """Whether measuring may stop before the most rounds; of the least, a few may have been lost. `settled` is the interval at SETTLED.

    What can be decided stops early, what cannot be only when it is late.
    """
    narrow = ratio.high <= (1 + options.most_width) * ratio.low
    late = ratio.rounds >= LATE * options.most_rounds
    known = stats.decide(settled) != "unsure" or (late and stays_unsure(ratio, options.most_rounds))
    return narrow and ratio.rounds >= USABLE * options.least_rounds and known


def stays_unsure(ratio: Interval, most_rounds: int) -> bool:
    """Whether a border of the band lies so near the middle of the interval that, measured to the end, it would hardly ever lie outside.

    The interval would then be narrower by the root of the rounds. Of what is stopped so, one in twenty would have been decided.
    """
    half = 0.5 * math.log(ratio.high / ratio.low) * math.sqrt(ratio.rounds / most_rounds) if ratio.low else math.inf
    return any(abs(math.log(ratio.ratio / border)) < NEAR * half for border in (1 - stats.BAND, 1 + stats.BAND))


def firm(decision: stats.Decision, settled: Interval, least_rounds: int) -> tuple[stats.Decision, str]:
    """`decision`, and a reason where it rests on fewer rounds than a win or a loss has to: then nothing is a win, and a loss stays one
    if `settled`, the interval at SETTLED, says so too."""
    if decision not in ("win", "loss") or settled.rounds >= USABLE * least_rounds:
        return decision, ""
    little = f"measuring ended after {settled.rounds} usable rounds of the {least_rounds} that are wanted"
    if decision == "loss" and stats.decide(settled) == "loss":
        return "loss", little
    return "unsure", f"{'faster' if decision == 'win' else 'slower'}, but {little}"
