"""The last stage: times the checked candidate at its shapes. Nothing else runs meanwhile.

A win needs a win at every shape, and every loss is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from referee.candidate import Candidate, unless_rejected
from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer
from referee.timing.measurement import Timing, TimingOptions
from referee.timing.stats import Decision, geometric_mean
from referee.verdict import Verdict

_WORST_FIRST: tuple[Decision, ...] = ("loss", "unsure", "tie", "win")


def timed(
    candidate: Candidate,
    prepared: CompiledCandidate,
    replayer: Replayer,
    options: TimingOptions | None,
) -> Verdict:
    """Time every timed case, and end the verdict. Raises Rejected or ReplayerError."""
    report, timings = candidate.report, []
    with report.during("timing"):
        for job in prepared.jobs:
            if job.cell.role == "bench":
                alone = replace(prepared, jobs=(job,))
                found = replayer.time(alone, seed=candidate.seed, options=options)
                timings.append(unless_rejected(found))
    report.timing = together(timings)
    report.passes("timing", f"{timings[0].rounds} rounds; the outputs of all were checked")
    return report.ended(*decided(timings))


def decided(timings: Sequence[Timing]) -> tuple[Decision, str]:
    """The decision at the worst shape, and a reason that names each shape."""
    if len(timings) == 1:
        return timings[0].decision, timings[0].reason
    worst = min((timing.decision for timing in timings), key=_WORST_FIRST.index)
    told = ", ".join(f"{timing.decision} at {timing.cell}{_ratio(timing)}" for timing in timings)
    mean = mean_ratio(timings)
    return worst, f"{told}{f'; geometric mean {mean:.3f}' if mean else ''}"


def together(timings: Sequence[Timing]) -> dict[str, Any]:
    """The timing of the first shape, with a list of all shapes and their geometric mean."""
    first = timings[0].to_json()
    if len(timings) == 1:
        return first
    return {
        **first,
        "shapes": [timing.to_json() for timing in timings],
        "geometric_mean": mean_ratio(timings),
    }


def mean_ratio(timings: Sequence[Timing]) -> float | None:
    """The geometric mean of the ratios; None if a shape has none."""
    ratios = [timing.ratio.ratio for timing in timings if timing.ratio is not None]
    return geometric_mean(ratios) if len(ratios) == len(timings) else None


def _ratio(timing: Timing) -> str:
    return f" ({timing.ratio.ratio:.3f} of {timing.bar})" if timing.ratio else ""
