"""The conclusion from a measured ratio, and the rules for ending a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping

from referee.timing import stats
from referee.timing.measurement import BARS, TimingOptions
from referee.timing.stats import Interval

SETTLED = 0.99
"""Confidence at which measuring may stop early."""
NEAR = 0.7
"""Share of the final interval's half width within which a border counts as near."""
LATE = 0.8
"""Share of the maximum rounds from which a result on a border may stop.

Earlier, equal kernels lie on a border by chance too often: it would show among twenty repeats.
"""
USABLE = 0.9
"""Share of the minimum rounds that must have a time of both; a lost round costs no further block."""


def decided(
    ratio: Interval | None, bar: str | None, missing: Mapping[str, str]
) -> tuple[stats.Decision, str]:
    """The decision and, unless the figures show it, its reason; `missing` maps baselines to
    reasons.

    A missing baseline may have been the fastest: without it no result is a win.
    """
    if bar is None or ratio is None:
        return (
            "unsure",
            "no baseline could be built"
            if bar is None and missing
            else "no block of rounds was usable",
        )
    decision = stats.decide(ratio)
    absent = [name for name in BARS if name in missing]
    if decision == "win" and absent:
        why = "; ".join(f"{name}: {missing[name]}" for name in absent)
        return "unsure", f"faster than {bar}, but not every baseline could be timed ({why})"
    return decision, ""


def enough(ratio: Interval, settled: Interval, options: TimingOptions) -> bool:
    """Whether measuring may stop before the maximum number of rounds; a few of the minimum may be
    lost.

    `settled` is the interval at SETTLED. A clear result stops early, a result on a border only
    late.
    """
    narrow = ratio.high <= (1 + options.most_width) * ratio.low
    late = ratio.rounds >= LATE * options.most_rounds
    known = stats.decide(settled) != "unsure" or (late and stays_unsure(ratio, options.most_rounds))
    return narrow and ratio.rounds >= USABLE * options.least_rounds and known


def stays_unsure(ratio: Interval, most_rounds: int) -> bool:
    """Whether a border of the band lies so near the interval's middle that the final interval would
    include it.

    The final interval is narrower by the root of the rounds. One in twenty results that stop so
    would have been decided.
    """
    half = (
        0.5 * math.log(ratio.high / ratio.low) * math.sqrt(ratio.rounds / most_rounds)
        if ratio.low
        else math.inf
    )
    return any(
        abs(math.log(ratio.ratio / border)) < NEAR * half
        for border in (1 - stats.BAND, 1 + stats.BAND)
    )


def firm(
    decision: stats.Decision, settled: Interval, least_rounds: int
) -> tuple[stats.Decision, str]:
    """`decision`, and a reason if it rests on too few rounds for a win or a loss.

    Then no result is a win, and a loss remains one only if `settled`, the interval at SETTLED,
    agrees.
    """
    if decision not in ("win", "loss") or settled.rounds >= USABLE * least_rounds:
        return decision, ""
    little = (
        f"measuring ended after {settled.rounds} usable rounds of the {least_rounds} that "
        "are wanted"
    )
    if decision == "loss" and stats.decide(settled) == "loss":
        return "loss", little
    return "unsure", f"{'faster' if decision == 'win' else 'slower'}, but {little}"
